/* SPDX-License-Identifier: Apache-2.0 */
/* A line is the same text, rank and moment however it was decorated, and what only looks like a decoration is text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "triage/line.h"

static bl_line_style style;
static char scratch[1 << 16];

static bl_line parse_bytes(const char *raw, int64_t n_raw)
{
    bl_line line = {.file = 7, .number = 11};
    bl_line_parse(&style, raw, n_raw, scratch, &line);
    assert_int_equal(line.file, 7);
    assert_int_equal(line.number, 11);
    return line;
}

static bl_line parse(const char *raw) { return parse_bytes(raw, (int64_t)strlen(raw)); }

static const char *text_of(const bl_line *line)
{
    static char text[1 << 16];
    memcpy(text, line->text, (size_t)line->n_text);
    text[line->n_text] = '\0';
    return text;
}

/* "2024-06-09 11:20:41.000000" + " zone" + " no year", "boot 8123.400112", "day 23:13:57.246693", "" for none. */
static const char *time_of(const bl_line *line)
{
    static char words[128];
    int64_t seconds = line->time / 1000000;
    int micros = (int)(line->time % 1000000);
    time_t moment = (time_t)seconds;
    struct tm tm;
    gmtime_r(&moment, &tm);
    char date[64];
    strftime(date, sizeof date, line->time_kind == BL_TIME_WALL ? "%Y-%m-%d %H:%M:%S" : "day %H:%M:%S", &tm);
    if (line->time_kind == BL_TIME_NONE)
        words[0] = '\0';
    else if (line->time_kind == BL_TIME_BOOT)
        snprintf(words, sizeof words, "boot %lld.%06d", (long long)seconds, micros);
    else
        snprintf(words, sizeof words, "%s.%06d%s%s", date, micros, line->time_has_zone ? " zone" : "",
                 line->time_kind == BL_TIME_WALL && !line->time_has_year ? " no year" : "");
    return words;
}

static int setup(void **state)
{
    (void)state;
    bl_line_style_init(&style, "run.log");
    bl_line_style_settle(&style);
    return 0;
}

/* ---- stamps -------------------------------------------------------------------------------------------------- */

typedef struct stamped {
    const char *raw, *time, *text;
} stamped;

static void check_stamps(const stamped *rows, int n)
{
    for (int i = 0; i < n; i++) {
        bl_line line = parse(rows[i].raw);
        if (strcmp(time_of(&line), rows[i].time) != 0 || strcmp(text_of(&line), rows[i].text) != 0)
            print_error("in: %s\n", rows[i].raw);
        assert_string_equal(time_of(&line), rows[i].time);
        assert_string_equal(text_of(&line), rows[i].text);
    }
}
#define CHECK_STAMPS(rows) check_stamps(rows, (int)(sizeof(rows) / sizeof((rows)[0])))

static void stamps_with_a_date_are_read(void **state)
{
    (void)state;
    static const stamped rows[] = {
        {"2024-06-09 11:20:41 lost", "2024-06-09 11:20:41.000000", "lost"},
        {"2024-06-09T11:20:41 lost", "2024-06-09 11:20:41.000000", "lost"},
        {"2024-06-09 11:20:41,123 lost", "2024-06-09 11:20:41.123000", "lost"},
        {"2024-06-09 11:20:41.123456789 lost", "2024-06-09 11:20:41.123456", "lost"},
        {"2024-06-09T11:20:41Z lost", "2024-06-09 11:20:41.000000 zone", "lost"},
        {"2024-06-09T11:20:41.5Z: lost", "2024-06-09 11:20:41.500000 zone", "lost"},
        {"2024-06-09T11:20:41+02:00 lost", "2024-06-09 09:20:41.000000 zone", "lost"},
        {"2024-06-09 11:20:41 -0730 lost", "2024-06-09 18:50:41.000000 zone", "lost"},
        {"2024-06-09T23:20:41,1-07 lost", "2024-06-10 06:20:41.100000 zone", "lost"},
        {"2024-06-09 11:20:41 UTC lost", "2024-06-09 11:20:41.000000 zone", "lost"},
        {"2024-06-09 11:20:41 - trainer - ERROR - lost", "2024-06-09 11:20:41.000000", "trainer - ERROR - lost"},
        {"2024-06-09 11:20:41.123 | ERROR    | lost", "2024-06-09 11:20:41.123000", "ERROR    | lost"},
        {"2024-06-09 11:20:41: lost", "2024-06-09 11:20:41.000000", "lost"},
        {"2024-06-09:11:20:41,120 INFO lost", "2024-06-09 11:20:41.120000", "INFO lost"},
        {"2024-06-09_11:20:41 lost", "2024-06-09 11:20:41.000000", "lost"},
        {"2024/06/09 11:20:41 lost", "2024-06-09 11:20:41.000000", "lost"},
        {"2024.6.9 11:20:41 lost", "2024-06-09 11:20:41.000000", "lost"},
        {"24/06/09 11:20:41 ERROR Executor: lost", "2024-06-09 11:20:41.000000", "ERROR Executor: lost"},
        {"06/09/2024 11:20:41 - INFO - lost", "2024-06-09 11:20:41.000000", "INFO - lost"},
        {"29/06/2024 11:20:41 - lost", "2024-06-29 11:20:41.000000", "lost"},
        {"2024-06-09 11:20 lost", "2024-06-09 11:20:00.000000", "lost"},
        {"[2024-06-09 11:20:41] lost", "2024-06-09 11:20:41.000000", "lost"},
        {"[2024-06-09T11:20:41.123] error: lost", "2024-06-09 11:20:41.123000", "error: lost"},
        {"[2024-06-09 11:20:41,123][INFO] lost", "2024-06-09 11:20:41.123000", "[INFO] lost"},
        {"[2024-06-09 11:20:41,123 INFO train.py] lost", "2024-06-09 11:20:41.123000", "INFO train.py] lost"},
        {"(2024-06-09 11:20:41) lost", "2024-06-09 11:20:41.000000", "lost"},
        {"[I 2024-06-09 11:20:41,108] lost", "2024-06-09 11:20:41.108000", "lost"},
        {"[ERROR] 2024-06-09 11:20:41 lost", "2024-06-09 11:20:41.000000", "lost"},
        {"[titan] 2024-06-09 11:20:41,000 - root - lost", "2024-06-09 11:20:41.000000", "root - lost"},
        {"ERROR 2024-06-09 11:20:41 lost", "2024-06-09 11:20:41.000000", "lost"},
        {"Sun Jun  9 11:20:41 2024 lost", "2024-06-09 11:20:41.000000", "lost"},
        {"[Sun Jun  9 11:20:41 2024] lost", "2024-06-09 11:20:41.000000", "lost"},
        {"[Sun Jun 09 11:20:41.5 2024] lost", "2024-06-09 11:20:41.500000", "lost"},
        {"Sun Jun  9 11:20:41 UTC 2024 lost", "2024-06-09 11:20:41.000000 zone", "lost"},
        {"Sun Jun  9 11:20:41 CEST 2024: lost", "2024-06-09 11:20:41.000000", "lost"},
        {"Sun 2024-06-09 11:20:41 UTC lost", "2024-06-09 11:20:41.000000 zone", "lost"},
        {"Jun  9 2024 11:20:41 lost", "2024-06-09 11:20:41.000000", "lost"},
        {"2024-02-29 00:00:00 lost", "2024-02-29 00:00:00.000000", "lost"},
        {"1717932041.123456 lost", "2024-06-09 11:20:41.123456 zone", "lost"},
        {"[1717932041.123456] [gpu-h1:8843 :0] sock.c:325 lost", "2024-06-09 11:20:41.123456 zone",
         "[gpu-h1:8843 :0] sock.c:325 lost"},
    };
    CHECK_STAMPS(rows);
}

static void stamps_of_kernels_count_from_the_start_of_the_machine(void **state)
{
    (void)state;
    static const stamped rows[] = {
        {"[ 8123.400112] NVRM: lost", "boot 8123.400112", "NVRM: lost"},
        {"[    0.000000] lost", "boot 0.000000", "lost"},
        {"[123456.789012] NVRM: lost", "boot 123456.789012", "NVRM: lost"},
        {"[ 8123.400112 <    0.000012>] lost", "boot 8123.400112", "lost"},
        {"[ 8123.400112] [ T1234] lost", "boot 8123.400112", "lost"},
        {"[ 8123.400112][    C3] lost", "boot 8123.400112", "lost"},
        {"[  +0.000012] NVRM: lost", "", "NVRM: lost"},
        {"<6>[ 8123.400112] NVRM: lost", "boot 8123.400112", "NVRM: lost"},
        {"6,1234,12345678901,-;NVRM: lost", "boot 12345.678901", "NVRM: lost"},
        {"4,1234,12345678901,c,caller=T12;lost", "boot 12345.678901", "lost"},
        {"kern  :info  : [ 8123.400112] NVRM: lost", "boot 8123.400112", "NVRM: lost"},
        {"kern  :err   : 2024-06-09T11:20:41,101200+00:00 NVRM: lost", "2024-06-09 11:20:41.101200 zone", "NVRM: lost"},
        {"[ 8123.400112] gpu-a02 kernel: NVRM: lost", "boot 8123.400112", "NVRM: lost"},
        {"[Sun Jun  9 11:20:41 2024] NVRM: lost", "2024-06-09 11:20:41.000000", "NVRM: lost"},
    };
    CHECK_STAMPS(rows);
}

static void a_syslog_line_loses_host_and_program(void **state)
{
    (void)state;
    static const stamped rows[] = {
        {"Jun  9 11:20:41 gpu-a02 kernel: NVRM: lost", "1972-06-09 11:20:41.000000 no year", "NVRM: lost"},
        {"Jun  9 11:20:41 gpu-a02 kernel: [ 8123.400112] NVRM: lost", "1972-06-09 11:20:41.000000 no year",
         "NVRM: lost"},
        {"Jun 09 11:20:41.123456 gpu-a02 slurmd[812]: lost", "1972-06-09 11:20:41.123456 no year", "lost"},
        {"Jun 09 11:20:41 gpu-a02 sshd: lost", "1972-06-09 11:20:41.000000 no year", "lost"},
        {"2024-06-09T11:20:41+0000 gpu-a02 kernel: lost", "2024-06-09 11:20:41.000000 zone", "lost"},
        {"2024-06-09T11:20:41.123456+00:00 gpu-a02 python[4711]: lost", "2024-06-09 11:20:41.123456 zone", "lost"},
        {"Sun 2024-06-09 11:20:41 UTC gpu-a02 kernel: lost", "2024-06-09 11:20:41.000000 zone", "lost"},
        {"1717932041.123456 gpu-a02 kernel: lost", "2024-06-09 11:20:41.123456 zone", "lost"},
        {"[Jun 9 11:20] NVRM: lost", "1972-06-09 11:20:00.000000 no year", "NVRM: lost"},
        {"<34>1 2024-06-09T11:20:41Z gpu-a02 kernel: lost", "2024-06-09 11:20:41.000000 zone", "lost"},
    };
    CHECK_STAMPS(rows);
    bl_line line = parse("Jun 09 11:20:41 gpu-a02 python3[4711]: lost");
    assert_int_equal(line.pid, 4711);
    line = parse("2024-06-09 11:20:41 trainer failed: lost");
    assert_string_equal(text_of(&line), "trainer failed: lost");
}

static void stamps_of_google_style_carry_a_level(void **state)
{
    (void)state;
    static const stamped rows[] = {
        {"E0714 09:32:03.102331 1234 api.py:833] lost", "1972-07-14 09:32:03.102331 no year", "api.py:833] lost"},
        {"E0714 09:32:03.102331    1234 api.py:833] lost", "1972-07-14 09:32:03.102331 no year", "api.py:833] lost"},
        {"E0714 09:32:03.102331 api.py:833] lost", "1972-07-14 09:32:03.102331 no year", "api.py:833] lost"},
        {"E0714 09:32:03.102331 140123456789 site-packages/torch/x.py:833] lost", "1972-07-14 09:32:03.102331 no year",
         "site-packages/torch/x.py:833] lost"},
        {"[E714 09:32:03.102331946 ProcessGroupNCCL.cpp:1595] lost", "1972-07-14 09:32:03.102331 no year",
         "ProcessGroupNCCL.cpp:1595] lost"},
        {"[E1002 16:10:04.325547585 ProcessGroupNCCL.cpp:627] lost", "1972-10-02 16:10:04.325547 no year",
         "ProcessGroupNCCL.cpp:627] lost"},
        {"E0000 00:00:1720949523.102331    1234 cuda_blas.cc:1418] lost", "2024-07-14 09:32:03.102331 zone",
         "cuda_blas.cc:1418] lost"},
    };
    CHECK_STAMPS(rows);
    assert_int_equal(parse("E0714 09:32:03.102331 1234 a.cc:1] lost").level, 'E');
    assert_int_equal(parse("[W714 09:32:03.102331946 a.cpp:1] lost").level, 'W');
    assert_int_equal(parse("2024-06-09 11:20:41.1: E tensorflow/x.cc:3] lost").level, 'E');
    assert_int_equal(parse("2024-06-09 11:20:41 [WARNING] lost").level, 'W');
    assert_int_equal(parse("[I 2024-06-09 11:20:41,108] lost").level, 'I');
    assert_int_equal(parse("2024-06-09 11:20:41 lost").level, 0);
}

static void stamps_without_a_year_or_a_day_say_so(void **state)
{
    (void)state;
    static const stamped rows[] = {
        {"[23:13:57.246693] lost", "day 23:13:57.246693", "lost"},
        {"23:13:57 lost", "day 23:13:57.000000", "lost"},
        {"[23:13:57] lost", "day 23:13:57.000000", "lost"},
        {"23:13:57,246 - root - lost", "day 23:13:57.246000", "root - lost"},
        {"INFO 07-14 09:32:03 worker.py:123] lost", "1972-07-14 09:32:03.000000 no year", "worker.py:123] lost"},
        {"[07/14 09:32:03 d2.engine.hooks]: lost", "1972-07-14 09:32:03.000000 no year", "d2.engine.hooks]: lost"},
        {"07/14 09:32:03 - mmengine - lost", "1972-07-14 09:32:03.000000 no year", "mmengine - lost"},
    };
    CHECK_STAMPS(rows);
}

static void what_is_out_of_range_or_joined_to_a_word_is_no_stamp(void **state)
{
    (void)state;
    static const char *const plain[] = {
        "2024-13-09 11:20:41 lost",
        "2023-02-29 11:20:41 lost",
        "2024-06-09 24:20:41 lost",
        "2024-06-09 lost",
        "[1234] lost",
        "[0.123] lost",
        "[8123.4001] lost",
        "E0732 09:32:03.1 lost",
        "0:00:12 lost",
        "2024-06-09 11:20:41x lost",
        "99:99:99 lost",
        "Jun 39 11:20:41 lost",
        "1,2,3,x;lost",
        "Err 9 11:20:41 lost",
        "123456.789012 lost",
        "2024-06-09T11:20:41/lost",
    };
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        bl_line line = parse(plain[i]);
        assert_string_equal(text_of(&line), plain[i]);
        assert_string_equal(time_of(&line), "");
    }
}

static void a_stamp_without_year_takes_the_year_that_the_file_suggests(void **state)
{
    (void)state;
    int64_t march_2026 = INT64_C(1772323200) * 1000000; /* 2026-03-01 */
    style.latest = march_2026;
    bl_line line = parse("Jul 14 09:32:03 a kernel: lost");
    assert_string_equal(time_of(&line), "2025-07-14 09:32:03.000000 no year");
    line = parse("Mar  1 09:32:03 a kernel: lost");
    assert_string_equal(time_of(&line), "2026-03-01 09:32:03.000000 no year");
    line = parse("Feb 29 09:32:03 a kernel: lost");
    assert_string_equal(time_of(&line), "2024-02-29 09:32:03.000000 no year");
    style.around = INT64_C(1735689600) * 1000000; /* 2025-01-01 */
    line = parse("Dec 31 23:59:59 a kernel: lost");
    assert_string_equal(time_of(&line), "2024-12-31 23:59:59.000000 no year");
    line = parse("Jan  2 00:00:00 a kernel: lost");
    assert_string_equal(time_of(&line), "2025-01-02 00:00:00.000000 no year");
    line.time = bl_line_time_near(line.time, march_2026);
    assert_string_equal(time_of(&line), "2026-01-02 00:00:00.000000 no year");
}

static void of_two_stamps_the_one_with_more_of_a_date_counts(void **state)
{
    (void)state;
    bl_line line = parse("2024-06-09T11:20:41.5Z [ 8123.400112] NVRM: lost");
    assert_string_equal(time_of(&line), "2024-06-09 11:20:41.500000 zone");
    assert_string_equal(text_of(&line), "NVRM: lost");
    line = parse("[23:13:57] 2024-06-09 11:20:41 lost");
    assert_string_equal(time_of(&line), "2024-06-09 11:20:41.000000");
    line = parse("2024-06-09T11:20:41.123456789Z stderr F E0714 09:32:03.102331 12 a.cc:1] lost");
    assert_string_equal(time_of(&line), "2024-06-09 11:20:41.123456 zone");
    assert_string_equal(text_of(&line), "a.cc:1] lost");
    assert_int_equal(line.level, 'E');
}

/* ---- ranks --------------------------------------------------------------------------------------------------- */

static void labels_give_the_rank(void **state)
{
    (void)state;
    static const struct {
        const char *raw;
        int rank;
        const char *text;
    } rows[] = {
        {"[rank3]: lost", 3, "lost"},
        {"[rank12]:[E714 09:32:03.102331946 a.cpp:1] lost", 12, "a.cpp:1] lost"},
        {"[rank3]:     loss.backward()", 3, "    loss.backward()"},
        {"[rank3] lost", 3, "lost"},
        {"[default3]:lost", 3, "lost"},
        {"[trainer5]: lost", 5, "lost"},
        {"[default3]:[rank11]: lost", 11, "lost"},
        {"[rank11]: [default3]: lost", 11, "lost"},
        {"[1,3]<stdout>:lost", 3, "lost"},
        {"[1,3]<stderr>: lost", 3, "lost"},
        {"[7]<stderr>:lost", 7, "lost"},
        {"[prterun-gpu-a02-1234@1,6]<stderr>: lost", 6, "lost"},
        {"Sun Jun  9 11:20:41 2024[1,3]<stdout>:lost", 3, "lost"},
        {"[1,3]<stdout>:2024-06-09 11:20:41 lost", 3, "lost"},
        {"(VllmWorker rank=3 pid=1234) lost", 3, "lost"},
        {"2024-06-09 11:20:41 [rank3]: lost", 3, "lost"},
        {"lost", -1, "lost"},
        {"[rankings]: lost", -1, "[rankings]: lost"},
        {"[step3]: lost", -1, "[step3]: lost"},
        {"3: lost", -1, "3: lost"},
        {"[3] lost", -1, "[3] lost"},
        {"[1,3] lost", -1, "[1,3] lost"},
        {"[rank99999999999999999999]: lost", -1, "[rank99999999999999999999]: lost"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bl_line line = parse(rows[i].raw);
        if (line.rank != rows[i].rank)
            print_error("in: %s\n", rows[i].raw);
        assert_int_equal(line.rank, rows[i].rank);
        assert_int_equal(line.is_labeled, rows[i].rank >= 0);
        assert_string_equal(text_of(&line), rows[i].text);
    }
    assert_true(parse("[default3]: lost").is_local_rank);
    assert_false(parse("[default3]:[rank11]: lost").is_local_rank);
}

static void origins_give_process_and_device_and_no_rank(void **state)
{
    (void)state;
    bl_line line = parse("gpu-n09:30212:30302 [2] NCCL INFO NET/Plugin: lost");
    assert_string_equal(text_of(&line), "NCCL INFO NET/Plugin: lost");
    assert_int_equal(line.rank, -1);
    assert_int_equal(line.device, 2);
    assert_int_equal(line.pid, 30212);
    line = parse("[2024-06-09 11:20:41] gpu-n09:30212:30302 [2] transport/net.cc:12 NCCL WARN lost");
    assert_string_equal(text_of(&line), "transport/net.cc:12 NCCL WARN lost");
    assert_int_equal(line.device, 2);
    line = parse("(RayTrainWorker pid=1234, ip=10.0.0.1) lost");
    assert_string_equal(text_of(&line), "lost");
    assert_int_equal(line.pid, 1234);
    assert_int_equal(line.rank, -1);
    line = parse("[pod/trainer-worker-3/pytorch] [rank2]: lost");
    assert_string_equal(text_of(&line), "lost");
    assert_int_equal(line.rank, 2);
    line = parse("trainer-3  | lost");
    assert_string_equal(text_of(&line), "lost");
    assert_int_equal(line.rank, -1);
    line = parse("2024-06-09T11:20:41.123456789Z stderr F [rank2]: lost");
    assert_string_equal(text_of(&line), "lost");
    line = parse("loss | 3");
    assert_string_equal(text_of(&line), "loss | 3");
}

static void a_rank_in_a_text_stays_there_and_is_told_apart(void **state)
{
    (void)state;
    bl_line line = parse("[default1]:[E714 09:32:03.1 ProcessGroupNCCL.cpp:607] [Rank 9] Watchdog caught");
    assert_int_equal(line.rank, 1);
    assert_int_equal(line.said_rank, 9);
    assert_string_equal(text_of(&line), "ProcessGroupNCCL.cpp:607] [Rank 9] Watchdog caught");
    line = parse("  what():  [PG ID 0 PG GUID 0(default_pg) Rank 2] Process group watchdog");
    assert_int_equal(line.said_rank, 2);
    assert_int_equal(line.rank, -1);
    assert_int_equal(parse("[rank: 4] Seed set to 42").said_rank, 4);
    assert_int_equal(parse("[INFO] [logging.py:96:log_dist] [Rank 0] lost").said_rank, 0);
    assert_int_equal(parse("[Rank -1] lost").said_rank, -1);
    assert_int_equal(parse("[nRank 3] lost").said_rank, -1);
    assert_int_equal(parse("Rank 3 is fine").said_rank, -1);
}

static void learn(const char *const *lines, int n)
{
    for (int i = 0; i < n; i++)
        bl_line_style_learn(&style, lines[i], (int64_t)strlen(lines[i]));
    bl_line_style_settle(&style);
}
#define LEARN(lines) learn(lines, (int)(sizeof(lines) / sizeof((lines)[0])))

static void numbers_are_ranks_where_the_whole_file_has_them(void **state)
{
    (void)state;
    static const char *const colons[] = {"0: start",     "2: start", " 1: start",
                                         "slurm: noise", "",         "0: 2024-06-09 11:20:41 it"};
    LEARN(colons);
    assert_true(style.is_numbered_colon);
    bl_line line = parse("12: 2024-06-09 11:20:41 lost");
    assert_int_equal(line.rank, 12);
    assert_string_equal(text_of(&line), "lost");
    assert_string_equal(time_of(&line), "2024-06-09 11:20:41.000000");
    line = parse(" 3: lost");
    assert_int_equal(line.rank, 3);
    line = parse("3:");
    assert_int_equal(line.rank, 3);
    assert_string_equal(text_of(&line), "");
    assert_int_equal(parse("3:4 lost").rank, -1);
    setup(NULL);
    static const char *const brackets[] = {"[0] start", "[2] start", "[1] start"};
    LEARN(brackets);
    assert_true(style.is_numbered_bracket);
    line = parse("[7] lost");
    assert_int_equal(line.rank, 7);
    assert_string_equal(text_of(&line), "lost");
}

static void numbers_that_only_rise_are_counts(void **state)
{
    (void)state;
    static const char *const listing[] = {"1: import torch", "2: import os", "3: main()"};
    LEARN(listing);
    assert_false(style.is_numbered_colon);
    setup(NULL);
    static const char *const epochs[] = {"[0] loss 3", "[0] loss 2", "[1] loss 1", "[2] loss 1"};
    LEARN(epochs);
    assert_false(style.is_numbered_bracket);
    setup(NULL);
    static const char *const few[] = {"0: a", "text", "1: b", "text", "text", "0: c", "text"};
    LEARN(few);
    assert_false(style.is_numbered_colon);
    setup(NULL);
    static const char *const blocks[] = {"0: a", "0: b", "1: a", "1: b"};
    LEARN(blocks);
    assert_true(style.is_numbered_colon);
}

static void the_name_of_a_file_gives_the_rank(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int rank;
    } rows[] = {
        {"rank3.log", 3},
        {"logs/rank_3.txt", 3},
        {"log-rank=12.out", 12},
        {"Rank-0.log.gz", 0},
        {"train_rank5_20240609.log", 5},
        {"rank5-20240609.log", 5},
        {"worker-3.log", 3},
        {"default_2.log", 2},
        {"3.err", 3},
        {"out/127.out.zst", 127},
        {"stdout.3", 3},
        {"stderr.11.gz", 11},
        {"log.1.3", 3},
        {"/tmp/run_x/attempt_0/3/stderr.log", 3},
        {"attempt_1/11/stdout.log", 11},
        {"out/1/rank.3/stdout", 3},
        {"rank3/train.log", 3},
        {"train.log", -1},
        {"-", -1},
        {"", -1},
        {"job-12_3.out", -1},
        {"slurm-48213.out", -1},
        {"4821.out", -1},
        {"train.log.1", -1},
        {"messages.1", -1},
        {"ranks8.log", -1},
        {"nrank8.log", -1},
        {"rank0-7.log", -1},
        {"frank3.log", -1},
        {"rank3x.log", -1},
        {"3/stdout.log", -1},
        {"attempt_0/x/stdout.log", -1},
        {"rank99999999999.log", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (bl_line_rank_of_path(rows[i].path) != rows[i].rank)
            print_error("path: %s\n", rows[i].path);
        assert_int_equal(bl_line_rank_of_path(rows[i].path), rows[i].rank);
    }
}

static void a_label_is_believed_before_the_name(void **state)
{
    (void)state;
    static const char *const own[] = {"start", "[rank3]: Traceback"};
    bl_line_style_init(&style, "rank3.log");
    LEARN(own);
    assert_int_equal(parse("plain").rank, 3);
    assert_false(parse("plain").is_labeled);
    static const char *const mixed[] = {"start", "[rank1]: Traceback"};
    bl_line_style_init(&style, "rank0.log");
    LEARN(mixed);
    assert_int_equal(parse("plain").rank, -1);
    assert_int_equal(parse("[rank1]: lost").rank, 1);
    static const char *const local[] = {"[default3]: start"};
    bl_line_style_init(&style, "rank11.log");
    LEARN(local);
    assert_int_equal(parse("[default3]: lost").rank, 11);
    assert_int_equal(parse("plain").rank, 11);
    static const char *const node[] = {"[default0]: start", "[default1]: start"};
    bl_line_style_init(&style, "worker-3.log");
    LEARN(node);
    assert_int_equal(parse("[default1]: lost").rank, 1);
    assert_int_equal(parse("plain").rank, -1);
}

static void dated_lines_tell_the_year_of_the_others(void **state)
{
    (void)state;
    static const char *const lines[] = {"2023-05-01 10:00:00 start", "0: 2023-05-02 10:00:00 start"};
    LEARN(lines);
    bl_line line = parse("[E502 10:00:01.5 a.cpp:1] lost");
    assert_string_equal(time_of(&line), "2023-05-02 10:00:01.500000 no year");
}

/* ---- bytes --------------------------------------------------------------------------------------------------- */

static void colours_and_other_escapes_vanish(void **state)
{
    (void)state;
    static const struct {
        const char *raw, *text;
    } rows[] = {
        {"\x1b[31mlost\x1b[0m", "lost"},
        {"\x1b[1;38;5;196mRuntime\x1b[0mError: \x1b[Klost", "RuntimeError: lost"},
        {"\x1b]0;title\alost", "lost"},
        {"\x1b]8;;http://a\x1b\\lost\x1b]8;;\x1b\\", "lost"},
        {"\x1b]0;never ended, lost", "0;never ended, lost"},
        {"\x1b(Blost", "lost"},
        {"\x1b=lost", "lost"},
        {"\x1bPdcs\x1b\\lost", "lost"},
        {"lost\x1b", "lost"},
        {"lost\x1b[", "lost"},
        {"lost\x1b[3", "lost"},
        {"\x1b[36m[rank3]:\x1b[0m lost", "lost"},
        {"\x1b[36m(RayTrainWorker pid=3, ip=10.0.0.1)\x1b[0m lost", "lost"},
        {"[36m(RayTrainWorker pid=3)[0m lost", "lost"},
        {"^[[31mlost^[[0m", "lost"},
        {"x[12m] [36m", "x[12m] [36m"},
        {"\x1b[2Alost", "lost"},
        {"one\x1b[1Atwo", "one\ntwo"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bl_line line = parse(rows[i].raw);
        assert_string_equal(text_of(&line), rows[i].text);
    }
}

static void every_line_end_is_cut(void **state)
{
    (void)state;
    static const char *const raws[] = {"lost", "lost\n", "lost\r\n", "lost\r\r\n", "lost\r"};
    for (size_t i = 0; i < sizeof raws / sizeof raws[0]; i++) {
        bl_line line = parse(raws[i]);
        assert_string_equal(text_of(&line), "lost");
        assert_int_equal(line.n_segments, 1);
        assert_ptr_equal(line.text, raws[i]);
    }
    assert_int_equal(parse("\n").n_text, 0);
    assert_int_equal(parse("\r\n").n_text, 0);
    assert_int_equal(parse("").n_text, 0);
}

static void carriage_returns_cut_a_line_into_segments(void **state)
{
    (void)state;
    bl_line line = parse("[rank2]:  3%|x\r\r  4%|xx\r2024-06-09 11:20:41 ERROR lost\r   \r\n");
    assert_string_equal(text_of(&line), " 3%|x\n  4%|xx\nERROR lost");
    assert_int_equal(line.n_segments, 3);
    assert_int_equal(line.rank, 2);
    assert_string_equal(time_of(&line), "2024-06-09 11:20:41.000000");
    const char *bytes;
    int64_t at = 0, n;
    assert_true(bl_line_segment(&line, &at, &bytes, &n));
    assert_memory_equal(bytes, " 3%|x", (size_t)n);
    assert_true(bl_line_segment(&line, &at, &bytes, &n));
    assert_memory_equal(bytes, "  4%|xx", (size_t)n);
    assert_true(bl_line_segment(&line, &at, &bytes, &n));
    assert_int_equal(n, 10);
    assert_memory_equal(bytes, "ERROR lost", 10);
    assert_false(bl_line_segment(&line, &at, &bytes, &n));
    assert_false(bl_line_segment(&line, &at, &bytes, &n));
    line = parse("");
    at = 0;
    assert_true(bl_line_segment(&line, &at, &bytes, &n));
    assert_int_equal(n, 0);
    assert_false(bl_line_segment(&line, &at, &bytes, &n));
}

static void bytes_that_are_no_text_stay(void **state)
{
    (void)state;
    static const char raw[] = "[rank3]: a\0b\xff\xc3(\x01 lost";
    bl_line line = parse_bytes(raw, sizeof raw - 1);
    assert_int_equal(line.rank, 3);
    assert_int_equal(line.n_text, sizeof raw - 1 - 9);
    assert_memory_equal(line.text, raw + 9, (size_t)line.n_text);
    bl_line without = {.file = 1};
    bl_line_parse(NULL, raw, sizeof raw - 1, scratch, &without);
    assert_int_equal(without.rank, 3);
}

/* ---- records -------------------------------------------------------------------------------------------------- */

typedef struct record {
    const char *raw, *time, *text;
    int rank;
    int64_t pid;
} record;

static void a_record_is_its_message(void **state)
{
    (void)state;
    static const record rows[] = {
        {"{\"__REALTIME_TIMESTAMP\": \"1790000012002018\", \"_PID\": \"7\", \"MESSAGE\": \"NVRM: Xid (PCI:0000:9b:00): "
         "74\"}",
         "2026-09-21 14:13:32.002018 zone", "NVRM: Xid (PCI:0000:9b:00): 74", -1, 7},
        {"{\"log\":\"[rank3]: lost\\n\",\"stream\":\"stderr\",\"time\":\"2026-11-03T11:06:40.123456789Z\"}",
         "2026-11-03 11:06:40.123456 zone", "lost", 3, -1},
        {"{\"message\": \"a\\nb \\u00e9\\t\\\"c\\\"\", \"timestamp\": 1790000000.5, \"rank\": 2}",
         "2026-09-21 14:13:20.500000 zone", "a\nb \xc3\xa9\t\"c\"", 2, -1},
        {"{\"ts\":1790000000123,\"level\":\"error\",\"msg\":\"lost\",\"exc_info\":\"Traceback:\\n  here\"}",
         "2026-09-21 14:13:20.123000 zone", "lost\nTraceback:\n  here", -1, -1},
        {"{\"PRIORITY\":\"3\",\"MESSAGE\":[78,86,27,91,48,109,33]}", "", "NV!", -1, -1},
        {"  \"MESSAGE\" : \"lost\",", "", "lost", -1, -1},
        {"MESSAGE=lost", "", "lost", -1, -1},
        {"{\"MESSAGE\": \"cut off he", "", "cut off he", -1, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bl_line line = parse(rows[i].raw);
        assert_string_equal(text_of(&line), rows[i].text);
        assert_string_equal(time_of(&line), rows[i].time);
        assert_int_equal(line.rank, rows[i].rank);
        assert_int_equal(line.pid, rows[i].pid);
    }
}

static void other_objects_stay_as_they_are(void **state)
{
    (void)state;
    static const char *const raws[] = {
        "{\"message\": \"lost\"}",
        "{\"role\": \"user\", \"time\": 1790000000, \"message\": \"lost\"}",
        "{\"step\": 7, \"level\": \"info\", \"loss\": 2.5}",
        "{\"level\": \"info\", \"msg\": \"lost\"} and more",
        "{\"level\": \"info\", \"msg\": 7}",
        "{\"level\": \"info\" \"msg\": \"lost\"}",
        "{\"a\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        "{\"",
        "{",
        "{\"MESSAGE",
    };
    for (size_t i = 0; i < sizeof raws / sizeof raws[0]; i++) {
        bl_line line = parse(raws[i]);
        assert_string_equal(text_of(&line), raws[i]);
        assert_int_equal(line.time_kind, BL_TIME_NONE);
        assert_null(line.host);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(stamps_with_a_date_are_read, setup),
        cmocka_unit_test_setup(stamps_of_kernels_count_from_the_start_of_the_machine, setup),
        cmocka_unit_test_setup(a_syslog_line_loses_host_and_program, setup),
        cmocka_unit_test_setup(stamps_of_google_style_carry_a_level, setup),
        cmocka_unit_test_setup(stamps_without_a_year_or_a_day_say_so, setup),
        cmocka_unit_test_setup(what_is_out_of_range_or_joined_to_a_word_is_no_stamp, setup),
        cmocka_unit_test_setup(a_stamp_without_year_takes_the_year_that_the_file_suggests, setup),
        cmocka_unit_test_setup(of_two_stamps_the_one_with_more_of_a_date_counts, setup),
        cmocka_unit_test_setup(labels_give_the_rank, setup),
        cmocka_unit_test_setup(origins_give_process_and_device_and_no_rank, setup),
        cmocka_unit_test_setup(a_rank_in_a_text_stays_there_and_is_told_apart, setup),
        cmocka_unit_test_setup(numbers_are_ranks_where_the_whole_file_has_them, setup),
        cmocka_unit_test_setup(numbers_that_only_rise_are_counts, setup),
        cmocka_unit_test_setup(the_name_of_a_file_gives_the_rank, setup),
        cmocka_unit_test_setup(a_label_is_believed_before_the_name, setup),
        cmocka_unit_test_setup(dated_lines_tell_the_year_of_the_others, setup),
        cmocka_unit_test_setup(colours_and_other_escapes_vanish, setup),
        cmocka_unit_test_setup(every_line_end_is_cut, setup),
        cmocka_unit_test_setup(carriage_returns_cut_a_line_into_segments, setup),
        cmocka_unit_test_setup(bytes_that_are_no_text_stay, setup),
        cmocka_unit_test_setup(a_record_is_its_message, setup),
        cmocka_unit_test_setup(other_objects_stay_as_they_are, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
