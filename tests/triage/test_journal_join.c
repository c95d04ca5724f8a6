/* SPDX-License-Identifier: Apache-2.0 */
/* Journals beside logs: how the process ended, and which tensor an address belongs to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "base/memory.h"
#include "report/journal.h"
#include "triage/explain.h"

#define BASE UINT64_C(0x7f0b5ea00000)

enum { WEIGHT = 4096, IDS = 64 };

static char folder[64], journal_path[96], log_path[96];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/belay-test-join-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(journal_path, sizeof journal_path, "%s/anything", folder);
    snprintf(log_path, sizeof log_path, "%s/rank.txt", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(journal_path);
    unlink(log_path);
    return rmdir(folder);
}

/* ---- a run ------------------------------------------------------------------------------------------------------------ */

static uint32_t label(bl_journal *journal, const char *text)
{
    return bl_journal_site(journal, BL_SITE_LABEL | bl_journal_text(journal, text));
}

static void live(bl_journal *journal, uint64_t storage, uint64_t address, uint64_t n_bytes, const char *name,
                 uint64_t step, bool is_death, uint32_t *place)
{
    bl_storage_record record = {.storage = storage,
                                .address = address,
                                .n_bytes = n_bytes,
                                .step = step,
                                .name = bl_journal_text(journal, name),
                                .site = label(journal, is_death ? "free.c:9" : "make.c:4"),
                                .is_death = is_death};
    bl_journal_storage(journal, &record, place);
}

static void launch(bl_journal *journal, uint64_t serial, uint16_t op, uint64_t reads, uint64_t writes)
{
    bl_launch_record *r = bl_journal_launch(journal, serial);
    memset((char *)r + sizeof r->serial, 0, sizeof *r - sizeof r->serial);
    r->step = serial / 2;
    r->epoch = 1;
    r->position = (uint32_t)serial;
    r->site = label(journal, "train.c:88");
    r->layer = bl_journal_text(journal, "classifier");
    r->op = op;
    r->n_operands = 2;
    r->operand[0] = (bl_operand_record){.address = BASE, .storage = reads};
    r->operand[1] = (bl_operand_record){.address = BASE, .storage = writes, .is_output = 1};
    bl_journal_launched(journal, r, serial);
}

/* Storage 1 lives; 2 was freed and lay 16 KiB behind it; 3 lies at the place of an old one, 4, that died before. */
static void write_journal(bool is_closed)
{
    static const char *const ops[] = {"none", "embedding", "matmul"};
    bl_journal *journal;
    uint32_t weight, ids, old, young;
    assert_int_equal(bl_journal_open(journal_path, ops, 3, &journal, NULL), BELAY_OK);
    live(journal, 1, BASE, WEIGHT, "embedding.weight", 0, false, &weight);
    live(journal, 2, BASE + 16384, IDS, "ids", 1, false, &ids);
    live(journal, 4, BASE + 1048576, IDS, "old", 1, false, &old);
    live(journal, 4, BASE + 1048576, IDS, "old", 2, true, &old);
    live(journal, 3, BASE + 1048576, IDS, "young", 3, false, &young);
    launch(journal, 1, 1, 2, 1);
    launch(journal, 2, 2, 1, 3);
    live(journal, 2, BASE + 16384, IDS, "ids", 3, true, &ids);
    if (is_closed)
        bl_journal_close(journal, true);
    else
        _exit(0);
}

/* A process that was killed leaves its journal open. */
static pid_t killed(void)
{
    pid_t child = fork();
    if (child == 0)
        write_journal(false);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return child;
}

static void write_log(const char *text)
{
    FILE *file = fopen(log_path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static bl_explain *explained(void)
{
    const char *const paths[] = {folder};
    bl_explain *explain = NULL;
    bl_error error = {0};
    assert_int_equal(bl_explain_run(&(bl_explain_options){.paths = paths, .n_paths = 1}, &explain, &error), BELAY_OK);
    return explain;
}

/* ---- expectations ------------------------------------------------------------------------------------------------------ */

/* The lines behind the first, which names the process. */
static void expect_lines(const bl_explain *explain, const char *expected)
{
    const char *lines = bl_explain_journals(explain);
    assert_string_equal(strchr(lines, '\n') + 1, expected);
}

static void expect_first_line(const bl_explain *explain, pid_t pid, const char *how)
{
    char begin[200], end[200], line[600] = "";
    sscanf(bl_explain_journals(explain), "%599[^\n]", line);
    snprintf(begin, sizeof begin, "%s: process %d, begun ", journal_path, (int)pid);
    snprintf(end, sizeof end,
             " UTC, %s; its last launch was #2 matmul in classifier at train.c:88, epoch 1, batch 2, step 1", how);
    assert_true(strncmp(line, begin, strlen(begin)) == 0);
    assert_true(strlen(line) > strlen(end));
    assert_string_equal(line + strlen(line) - strlen(end), end);
}

static const char *fact(const bl_explain *explain, const char *name)
{
    const bl_findings *findings = bl_explain_findings(explain);
    assert_int_equal(findings->n_verdicts, 1);
    for (int i = 0; i < findings->verdicts[0].n_facts; i++)
        if (strcmp(findings->verdicts[0].facts[i].name, name) == 0)
            return findings->verdicts[0].facts[i].value;
    return "";
}

/* ---- how it ended ------------------------------------------------------------------------------------------------------ */

static void a_journal_closed_in_order_is_no_fault(void **state)
{
    (void)state;
    write_journal(true);
    bl_explain *explain = explained();
    assert_int_equal(bl_explain_findings(explain)->n_verdicts, 0);
    expect_first_line(explain, getpid(), "closed in order");
    expect_lines(explain, "");
    bl_explain_free(explain);
}

static void a_journal_never_closed_tells_what_the_process_was_doing(void **state)
{
    (void)state;
    pid_t pid = killed();
    bl_explain *explain = explained();
    assert_string_equal(bl_explain_findings(explain)->verdicts[0].rule->name, "journal_killed");
    expect_first_line(explain, pid, "never closed");
    assert_string_equal(fact(explain, "op"), "matmul");
    assert_string_equal(fact(explain, "site"), "train.c:88");
    assert_string_equal(fact(explain, "layer"), "classifier");
    assert_string_equal(fact(explain, "step"), "1");
    bl_explain_free(explain);
}

static void an_error_beside_a_journal_is_the_verdict(void **state)
{
    (void)state;
    (void)killed();
    write_log("RuntimeError: CUDA error: an illegal memory access was encountered\n");
    bl_explain *explain = explained();
    assert_string_not_equal(bl_explain_findings(explain)->verdicts[0].rule->name, "journal_killed");
    assert_string_equal(fact(explain, "op"), "matmul");
    bl_explain_free(explain);
}

/* ---- streams --------------------------------------------------------------------------------------------------------- */

static void put(bl_journal *journal, uint64_t serial, uint32_t stream, uint64_t number)
{
    launch(journal, serial, 1, 0, 0);
    bl_launch_record *r = bl_journal_launch(journal, serial);
    r->stream = stream;
    r->number = number;
    bl_journal_launched(journal, r, serial);
}

/* Row 0 had another stream before; 1 has copies only; 2 has a name that is no text for a terminal; 3 is closed. */
static void write_streams(void)
{
    static const char *const ops[] = {"none", "add"};
    bl_journal *journal;
    assert_int_equal(bl_journal_open(journal_path, ops, 2, &journal, NULL), BELAY_OK);
    bl_stream_record row = {.device = "sim:0", .number = 1};
    (void)bl_journal_stream_open(journal, 0, &row);
    put(journal, 1, 0, 9);
    row.put = row.passed = 9;
    bl_stream_record *at = bl_journal_stream_open(journal, 0, &row);
    put(journal, 2, 0, 10);
    put(journal, 3, 0, 0);
    at->passed = 10;
    (void)bl_journal_stream_open(journal, 1, &(bl_stream_record){.device = "sim:1", .put = 3, .passed = 1});
    (void)bl_journal_stream_open(
        journal, 2, &(bl_stream_record){.device = "\033[31m", .number = 2, .name = bl_journal_text(journal, "a\nb")});
    put(journal, 4, 2, 2);
    bl_journal_launch(journal, 4)->site = label(journal, "");
    bl_journal_launched(journal, bl_journal_launch(journal, 4), 4);
    (void)bl_journal_stream_open(journal, 3, &(bl_stream_record){.device = "sim:1", .number = 3, .put = 5});
    bl_journal_stream_close(journal, 3);
    _exit(0);
}

static void streams_are_told_with_what_they_hold_and_nothing_of_a_former_one(void **state)
{
    int status;
    (void)state;
    pid_t child = fork();
    if (child == 0)
        write_streams();
    assert_int_equal(waitpid(child, &status, 0), child);
    bl_explain *explain = explained();
    expect_lines(explain, "    sim:0, stream 1: nothing in flight\n"
                          "        #2 add in classifier at train.c:88, epoch 1, batch 2, step 1: ended\n"
                          "        #3 add in classifier at train.c:88, epoch 1, batch 3, step 1: put nothing into the "
                          "stream\n"
                          "    sim:1, default stream: 2 commands (copies, waits) in flight\n"
                          "    \\x1B[31m, stream a\\x0Ab: 1 launch and 1 other command (a copy or a wait) in flight\n"
                          "        #4 add in classifier, epoch 1, batch 4, step 2: queued\n"
                          "    of all streams: 1 launch and 3 other commands (copies, waits) in flight\n");
    assert_string_equal(fact(explain, "in_flight"), "1");
    assert_string_equal(fact(explain, "launch_state"), "queued");
    bl_explain_free(explain);
}

/* ---- addresses --------------------------------------------------------------------------------------------------------- */

static void expect_address(uint64_t address, const char *expected)
{
    char text[200];
    snprintf(text, sizeof text, "[h:99] Signal: Segmentation fault (11)\n[h:99] Failing at address: 0x%llx\n",
             (unsigned long long)address);
    write_log(text);
    bl_explain *explain = explained();
    char lines[1200];
    snprintf(lines, sizeof lines, expected, log_path);
    expect_lines(explain, lines);
    bl_explain_free(explain);
}

#define WEIGHT_WORDS                                                                                                   \
    "'embedding.weight' (4096 bytes at 0x7f0b5ea00000, alive; made in step 0 at make.c:4, 2 launches before the "      \
    "end)\n"
#define WEIGHT_LAUNCHES                                                                                                \
    "    it is read by launch #2 matmul in classifier at train.c:88, epoch 1, batch 2, step 1\n"                       \
    "    it is written by launch #1 embedding in classifier at train.c:88, epoch 1, batch 1, step 0\n"

static void an_address_is_told_inside_behind_and_before_its_tensor(void **state)
{
    (void)state;
    (void)killed();
    expect_address(BASE + 40, "0x7f0b5ea00028 (%s:2) is byte 40 of " WEIGHT_WORDS WEIGHT_LAUNCHES);
    expect_address(BASE + WEIGHT, "0x7f0b5ea01000 (%s:2) lies 0 bytes behind the end of " WEIGHT_WORDS WEIGHT_LAUNCHES);
    expect_address(BASE - 8, "0x7f0b5e9ffff8 (%s:2) lies 8 bytes before " WEIGHT_WORDS WEIGHT_LAUNCHES);
}

static void an_address_of_a_freed_tensor_is_told_beside_its_neighbour_that_lives(void **state)
{
    (void)state;
    (void)killed();
    expect_address(BASE + 16384 + 8,
                   "0x7f0b5ea04008 (%1$s:2) is byte 8 of 'ids' (64 bytes at 0x7f0b5ea04000, freed; made in step 1 at "
                   "make.c:4, 2 launches before the end; freed in step 3 at free.c:9, after the last launch)\n"
                   "    it is read by launch #1 embedding in classifier at train.c:88, epoch 1, batch 1, step 0\n"
                   "0x7f0b5ea04008 (%1$s:2) lies 12296 bytes behind the end of " WEIGHT_WORDS WEIGHT_LAUNCHES);
}

static void of_two_tensors_at_one_place_the_living_one_is_told(void **state)
{
    (void)state;
    (void)killed();
    expect_address(BASE + 1048576 + 63,
                   "0x7f0b5eb0003f (%s:2) is byte 63 of 'young' (64 bytes at 0x7f0b5eb00000, alive; made in step 3 at "
                   "make.c:4, 2 launches before the end)\n"
                   "    it is written by launch #2 matmul in classifier at train.c:88, epoch 1, batch 2, step 1\n");
}

static void far_addresses_and_null_belong_to_no_tensor(void **state)
{
    (void)state;
    (void)killed();
    expect_address(BASE + WEIGHT + 512 * 1024, "");
    expect_address(0x20, "");
    expect_address(UINT64_MAX, "");
}

static void addresses_are_found_in_the_words_of_other_tools(void **state)
{
    static const char *const lines[] = {
        "train[99]: segfault at 7f0b5ea00028 ip 000055d0c1a2b3c4 sp 00007ffd4bc1851a error 4 in "
        "train[55d0c1a00000+378000]",
        "Illegal access to address (@global)0x7f0b5ea00028 detected.",
        "==99==ERROR: AddressSanitizer: SEGV on unknown address 0x7f0b5ea00028 (pc 0x55d0c1 bp 0x7ffd4 sp 0x7ffd4 T0)",
        "========= Invalid __global__ read of size 4 bytes\n=========     at k(float*)+0x70\n=========     by thread "
        "(0,0,0) in block (0,0,0)\n=========     Address 0x7f0b5ea00028 is out of bounds",
        "[ 10.0] NVRM: Xid (PCI:0000:41:00): 31, pid=99, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE "
        "GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f0b_5ea00028. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    };
    (void)state;
    (void)killed();
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        write_log(lines[i]);
        bl_explain *explain = explained();
        if (strstr(bl_explain_journals(explain), " is byte 40 of 'embedding.weight' (4096 bytes") == NULL)
            fail_msg("no tensor for: %s\nbut:\n%s", lines[i], bl_explain_journals(explain));
        bl_explain_free(explain);
    }
}

static void facts_of_the_tensor_stand_with_the_verdict(void **state)
{
    (void)state;
    (void)killed();
    write_log("[h:99] Signal: Segmentation fault (11)\n[h:99] Failing at address: 0x7f0b5ea04008\n");
    bl_explain *explain = explained();
    assert_string_equal(fact(explain, "tensor"), "ids");
    assert_string_equal(fact(explain, "tensor_state"), "freed");
    assert_string_equal(fact(explain, "tensor_place"), "inside");
    assert_string_equal(fact(explain, "tensor_offset"), "8");
    assert_string_equal(fact(explain, "tensor_made_step"), "1");
    assert_string_equal(fact(explain, "tensor_age_launches"), "2");
    assert_string_equal(fact(explain, "tensor_freed_at"), "free.c:9");
    assert_string_equal(fact(explain, "touched_by"),
                        "#1 embedding in classifier at train.c:88, epoch 1, batch 1, step 0");
    bl_explain_free(explain);
}

/* ---- files that are no good -------------------------------------------------------------------------------------------- */

static void read_file(char **bytes, long *n)
{
    FILE *file = fopen(journal_path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *n = ftell(file);
    rewind(file);
    *bytes = malloc((size_t)*n);
    assert_int_equal(fread(*bytes, 1, (size_t)*n, file), *n);
    fclose(file);
}

static void a_packed_journal_is_read_as_well(void **state)
{
    char *bytes;
    long n;
    (void)state;
    write_journal(true);
    read_file(&bytes, &n);
    gzFile packed = gzopen(journal_path, "wb1");
    assert_int_equal(gzwrite(packed, bytes, (unsigned)n), n);
    gzclose(packed);
    free(bytes);
    bl_explain *explain = explained();
    expect_first_line(explain, getpid(), "closed in order");
    bl_explain_free(explain);
}

static void a_damaged_journal_is_told_of_and_costs_nothing(void **state)
{
    char expected[300], *bytes;
    long n;
    (void)state;
    write_journal(true);
    read_file(&bytes, &n);
    assert_int_equal(truncate(journal_path, 1000), 0);
    write_log("RuntimeError: CUDA error: an illegal memory access was encountered\n");
    bl_explain *explain = explained();
    assert_int_equal(bl_explain_findings(explain)->n_verdicts, 1);
    snprintf(expected, sizeof expected, "a damaged journal, not used: %s: a section lies outside of the file\n",
             journal_path);
    assert_string_equal(bl_explain_journals(explain), expected);
    bl_explain_free(explain);
    free(bytes);
}

static void every_allocation_of_a_join_may_fail(void **state)
{
    const char *const paths[] = {folder};
    (void)state;
    (void)killed();
    write_log("[h:99] Signal: Segmentation fault (11)\n[h:99] Failing at address: 0x7f0b5ea04008\n");
    bl_explain *expected = explained();
    bl_log_tools tools;
    bl_error error = {0};
    assert_int_equal(bl_log_tools_init(&tools, &error), BELAY_OK);
    bool was_reached = true;
    for (int64_t n = 0; was_reached; n++) {
        bl_explain *explain = NULL;
        bl_memory_fail_at(n);
        belay_code code =
            bl_explain_run(&(bl_explain_options){.paths = paths, .n_paths = 1, .tools = &tools}, &explain, &error);
        was_reached = bl_memory_failed();
        bl_memory_fail_at(-1);
        assert_true(code == BELAY_MEM_EXHAUSTED || code == BELAY_OK);
        if (code == BELAY_OK)
            assert_string_equal(bl_explain_journals(explain), bl_explain_journals(expected));
        bl_explain_free(explain);
    }
    bl_log_tools_fini(&tools);
    bl_explain_free(expected);
}

int main(void)
{
#define JOIN_TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        JOIN_TEST(a_journal_closed_in_order_is_no_fault),
        JOIN_TEST(a_journal_never_closed_tells_what_the_process_was_doing),
        JOIN_TEST(an_error_beside_a_journal_is_the_verdict),
        JOIN_TEST(streams_are_told_with_what_they_hold_and_nothing_of_a_former_one),
        JOIN_TEST(an_address_is_told_inside_behind_and_before_its_tensor),
        JOIN_TEST(an_address_of_a_freed_tensor_is_told_beside_its_neighbour_that_lives),
        JOIN_TEST(of_two_tensors_at_one_place_the_living_one_is_told),
        JOIN_TEST(far_addresses_and_null_belong_to_no_tensor),
        JOIN_TEST(addresses_are_found_in_the_words_of_other_tools),
        JOIN_TEST(facts_of_the_tensor_stand_with_the_verdict),
        JOIN_TEST(a_packed_journal_is_read_as_well),
        JOIN_TEST(a_damaged_journal_is_told_of_and_costs_nothing),
        JOIN_TEST(every_allocation_of_a_join_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
