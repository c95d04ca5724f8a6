/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a kernel log holds: texts of an event lie inside of the line, numbers inside of their range, and the GPUs can
 * be judged, asked and remembered. */
#include "fuzz_support.h"

#include "triage/cuda_errors.h"
#include "triage/gpu.h"

enum { most_lines = 4000 };

static void check_text(bl_kernel_text text, const char *line, int64_t n)
{
    fuzz_require(text.n_bytes >= 0, "a text has a length");
    if (text.n_bytes > 0)
        fuzz_require(text.bytes >= line && text.bytes + text.n_bytes <= line + n, "a text lies inside of the line");
}

static void check_numbers(const bl_kernel_event *e)
{
    fuzz_require(e->code >= -1 && e->code <= 99999, "a code is in its range");
    fuzz_require(e->pid >= -1 && e->pid <= INT32_MAX, "a pid is in its range");
    fuzz_require((e->pid_form == BL_KERNEL_PID_KNOWN) == (e->pid >= 0), "a pid and its form agree");
    fuzz_require(e->gpc >= -1 && e->gpc <= 255 && e->tpc >= -1 && e->tpc <= 255, "a TPC is in its range");
    fuzz_require(e->n_words >= 0 && e->n_words <= 8, "words have their places");
    fuzz_require(e->from <= BL_N_RECOVERIES && e->to <= BL_N_RECOVERIES, "an action is one of the table");
    fuzz_require(strlen(e->uuid) < sizeof e->uuid, "a UUID ends");
}

static void check_event(const bl_kernel_event *e, const char *line, int64_t n)
{
    check_numbers(e);
    check_text(e->host, line, n);
    check_text(e->name, line, n);
    check_text(e->message, line, n);
    check_text(e->reason, line, n);
    check_text(e->engine, line, n);
    check_text(e->client, line, n);
    check_text(e->fault_text, line, n);
    check_text(e->unit, line, n);
    check_text(e->from_name, line, n);
    check_text(e->to_name, line, n);
    check_text(e->serial, line, n);
}

static void feed(bl_gpu_fold *fold, bl_kernel_reader *reader, const char *bytes, int64_t n, int64_t number)
{
    char scratch[4096], words[BL_PCI_WORDS];
    bl_kernel_event event;
    bl_line line = {.file = (int)(number % 3), .number = number};
    if (n > (int64_t)sizeof scratch)
        n = sizeof scratch;
    if (bl_kernel_read(bytes, n, &event))
        check_event(&event, bytes, n);
    bl_line_parse(NULL, bytes, n, scratch, &line);
    if (bl_kernel_feed_line(reader, &line, &event)) {
        fuzz_require(strlen(bl_pci_describe(event.pci, words)) < sizeof words, "an address has words");
        bool is_kept = bl_gpu_fold_add(fold, &event, (bl_gpu_place){line.file, number, line.time, line.time_kind});
        fuzz_require(is_kept || bl_gpu_n_lost(fold) > 0, "what is not kept is counted as lost");
    }
    if (number < 3) /* slow */
        (void)bl_cuda_error_search(bytes, n < 200 ? n : 200, NULL);
}

static void check_verdict(const bl_gpu_verdict *v)
{
    fuzz_require(v->n_lines >= 0 && v->n_lines <= BL_GPU_EVIDENCE, "evidence has its places");
    fuzz_require(v->n_incidents >= v->n_kept && v->n_kept >= 0, "no more incidents are kept than came");
    fuzz_require((v->origin == NULL) == (v->n_kept == 0), "a verdict stands on an incident");
    fuzz_require(v->origin == NULL || v->n_lines > 0, "a verdict has evidence");
    fuzz_require(v->n_codes <= BL_GPU_CODES, "codes have their places");
    for (int64_t i = 0; i < v->n_kept; i++)
        fuzz_require(strlen(v->incidents[i]->text) < sizeof v->incidents[i]->text, "a text ends");
}

static void check_join(const bl_gpu_fold *fold, int64_t pid, int64_t time, bl_time_kind kind)
{
    bl_gpu_error error = {.pid = pid, .time = time, .time_kind = kind, .cuda_code = pid % 2 == 0 ? 700 : 0};
    bl_gpu_match match = bl_gpu_find(fold, &error);
    fuzz_require((match.join == BL_GPU_JOIN_NONE) == (match.incident == NULL), "a join has an incident");
    fuzz_require((match.verdict < 0) == (match.incident == NULL), "a join has a verdict");
}

static void judge(bl_gpu_fold *fold)
{
    const bl_gpu_verdict *verdicts;
    bl_error error = {.code = BELAY_OK};
    bl_history *history;
    fuzz_require(bl_history_open(&(bl_history_options){.is_off = true}, &history, &error) == BELAY_OK,
                 "there is memory");
    int n = bl_gpu_judge(fold, &(bl_gpu_options){.history = history}, &verdicts);
    fuzz_require(n >= 0, "there is memory");
    for (int i = 0; i < n; i++) {
        check_verdict(&verdicts[i]);
        for (int64_t k = 0; k < verdicts[i].n_kept && k < 4; k++) {
            const bl_gpu_incident *incident = verdicts[i].incidents[k];
            check_join(fold, incident->pid, incident->place.time, incident->place.time_kind);
            check_join(fold, -1, incident->place.time, incident->place.time_kind);
        }
    }
    check_join(fold, 2, INT64_MIN, BL_TIME_WALL);
    check_join(fold, -1, INT64_MAX, BL_TIME_OF_DAY);
    fuzz_require(bl_gpu_remember(fold, history, "", 0, 1, &error) == BELAY_OK, "what is off takes all");
    bl_history_close(history);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data, *end = bytes + size;
    bl_kernel_reader reader = {0};
    bl_gpu_fold *fold = bl_gpu_fold_new();
    fuzz_require(fold != NULL, "there is memory");
    for (int64_t number = 1; bytes < end && number <= most_lines; number++) {
        const char *feed_at = memchr(bytes, '\n', (size_t)(end - bytes));
        int64_t n = (feed_at == NULL ? end : feed_at) - bytes;
        feed(fold, &reader, bytes, n, number);
        bytes += feed_at == NULL ? n : n + 1;
    }
    judge(fold);
    bl_gpu_fold_free(fold);
    return 0;
}
