/* SPDX-License-Identifier: Apache-2.0 */
/* The golden runner:  golden FOLDER [LIST] [--device NAME]
 *                     golden --rank FOLDER FILE [DEVICE]     what it starts for files of several ranks
 *
 * Runs every .safetensors file of FOLDER that make_golden.py wrote, prints each value that does not match, and the
 * files that it did not run, one a line.  With LIST the files not run must be those that it names.  Ends with 1 when
 * something does not match.
 *
 * With --device each file runs on the cpu and then there, while sim:0 is the current device: both give the same bits. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "golden/golden.h"

static const golden_op *const tables[] = {golden_map_ops,  golden_shape_ops, golden_row_ops,       golden_index_ops,
                                          golden_lstm_ops, golden_optim_ops, golden_attention_ops, golden_train_ops,
                                          golden_conv_ops, golden_ddp_ops};

static const golden_op *find_op(const char *name)
{
    for (int t = 0; t < BL_COUNT(tables); t++)
        for (const golden_op *op = tables[t]; op->op != NULL; op++)
            if (strcmp(op->op, name) == 0)
                return op;
    return NULL;
}

static void remember(void *state, belay_code code, const char *text)
{
    golden *g = state;
    (void)code;
    strncat(g->told, text, sizeof g->told - strlen(g->told) - 1);
}

static void run_op(golden *g, const golden_op *op)
{
    if (op->run != NULL) {
        op->run(g);
    } else if (op->unary != NULL) {
        golden_output(g, "y", op->unary(golden_input(g, "x")));
    } else {
        belay_tensor a = golden_input(g, "a");
        golden_output(g, "y", op->binary(a, golden_input(g, "b")));
    }
    if (!g->is_skipped && g->absent == NULL)
        golden_backward(g);
}

/* Nothing of the file was left out. */
static void check_coverage(golden *g)
{
    for (int64_t i = 0; i < bl_safetensors_n_entries(g->file); i++) {
        const char *name = bl_safetensors_entry_at(g->file, i)->name;
        bool is_result = strncmp(name, "output.", 7) == 0 || strncmp(name, "grad.", 5) == 0;
        if (is_result && !g->is_compared[i])
            golden_fail(g, "%s was not compared", name);
    }
}

/* Opens a context for the file and runs it on that device, NULL: the only one. */
static void run_on(golden *g, const golden_op *op, const char *device)
{
    g->n_leaves = g->n_outputs = 0;
    g->bits = false;
    g->bits_told = 14695981039346656037u;
    g->device = device != NULL ? device : "cpu";
    g->rtol = golden_number(g, "rtol");
    g->atol = golden_number(g, "atol");
    g->scale = 1;
    g->is_compared = bl_alloc(bl_safetensors_n_entries(g->file), sizeof *g->is_compared);
    g->context = belay_open(&(belay_options){
        .device = device != NULL ? "sim:0" : "cpu", .log = remember, .log_state = g, .no_journal = true});
    if (g->is_compared == NULL) {
        golden_fail(g, "no memory");
    } else {
        run_op(g, op);
        if (!g->is_skipped && g->absent == NULL)
            check_coverage(g);
    }
    if (g->told[0] != '\0')
        golden_fail(g, "Belay told\n%s", g->told);
    (void)belay_close(g->context);
    bl_free(g->is_compared);
}

static void run_case(golden *g, const golden_op *op, const char *device)
{
    run_on(g, op, NULL);
    uint64_t bits = g->bits_told;
    if (device == NULL || g->is_skipped || g->absent != NULL)
        return;
    run_on(g, op, device);
    if (g->bits_told != bits)
        golden_fail(g, "%s gives other bits than the cpu", device);
}

typedef enum outcome { PASSED, FAILED, NOT_RUN, ABSENT } outcome;

static outcome run_file(const char *folder, const char *label, const char *device, bool is_rank)
{
    char path[4096];
    bl_error error = {0};
    golden *g = bl_alloc(1, sizeof *g);
    if (g == NULL)
        return FAILED;
    g->folder = folder;
    g->label = label;
    g->is_rank = is_rank;
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, label);
    outcome result = FAILED;
    if (bl_safetensors_open(path, &g->file, &error) != BELAY_OK) {
        golden_fail(g, "%s", error.what);
    } else {
        const golden_op *op = find_op(golden_text(g, "op"));
        if (op != NULL && is_rank)
            run_on(g, op, device);
        else if (op != NULL)
            run_case(g, op, device);
        result = op == NULL || g->is_skipped ? NOT_RUN : g->n_failures > 0 ? FAILED : PASSED;
        if (result == PASSED && g->absent != NULL) {
            printf("skipped: %s, without %s\n", label, g->absent);
            result = ABSENT;
        }
        bl_safetensors_close(g->file);
    }
    bl_free(g);
    return result;
}

/* ---- the folder ---- */

static int is_golden(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name), suffix = strlen(".safetensors");
    return length > suffix && strcmp(entry->d_name + length - suffix, ".safetensors") == 0;
}

/* Names one a line, ended by each a newline; the caller frees. */
static char *read_list(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = bl_alloc(65536, 1);
    if (file == NULL || text == NULL) {
        printf("FAIL %s cannot be read\n", path);
        bl_free(text);
        text = NULL;
    } else {
        size_t n = fread(text, 1, 65535, file);
        text[n] = '\0';
    }
    if (file != NULL)
        fclose(file);
    return text;
}

static bool list_matches(const char *path, const char *not_run)
{
    char *wanted = read_list(path);
    bool same = wanted != NULL && strcmp(wanted, not_run) == 0;
    if (wanted != NULL && !same)
        printf("FAIL the files not run are not those of %s, which are:\n%s", path, wanted);
    bl_free(wanted);
    return same;
}

/* glibc orders by strcoll in alphasort; the list is ordered by bytes. */
static int by_bytes(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

int main(int argc, char **argv)
{
    struct dirent **entry;
    const char *device = NULL;
    if (argc > 3 && strcmp(argv[argc - 2], "--device") == 0) {
        device = argv[argc - 1];
        argc -= 2;
    }
    if (argc >= 4 && strcmp(argv[1], "--rank") == 0)
        return run_file(argv[2], argv[3], argc > 4 ? argv[4] : NULL, true) == PASSED ? 0 : 1;
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: golden FOLDER [LIST] [--device NAME]\n");
        return 2;
    }
    int n = scandir(argv[1], &entry, is_golden, by_bytes), count[4] = {0};
    if (n <= 0) {
        fprintf(stderr, "golden: no .safetensors files in %s\n", argv[1]);
        return 2;
    }
    bl_text not_run = {0};
    for (int i = 0; i < n; i++) {
        entry[i]->d_name[strlen(entry[i]->d_name) - strlen(".safetensors")] = '\0';
        outcome result = run_file(argv[1], entry[i]->d_name, device, false);
        count[result]++;
        if (result == NOT_RUN)
            bl_text_format(&not_run, "%s\n", entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    printf("%d files: %d passed, %d failed, %d skipped, %d not run%s\n%s", n, count[PASSED], count[FAILED],
           count[ABSENT], count[NOT_RUN], count[NOT_RUN] > 0 ? ":" : "", bl_text_get(&not_run));
    bool ok = count[FAILED] == 0 && (argc < 3 || list_matches(argv[2], bl_text_get(&not_run)));
    bl_text_fini(&not_run);
    return ok ? 0 : 1;
}
