/* SPDX-License-Identifier: Apache-2.0 */
/* What a second run is given, so that a memory fault says where it was.  Rows: variable, value, for one rank or many,
 * and its side effect, which is always said.  Launch blocking is for one rank: with several it can make collectives
 * hang, so that they get dumps and records in place of it. */
#define _GNU_SOURCE /* memmem */
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run.h"

enum { ONE = 1, MANY = 2, BOTH = 3 };

static const struct {
    int ranks;
    const char *name, *value; /* %s in it: the attempt's folder */
    const char *effect;
} rows[] = {
    {ONE, "CUDA_LAUNCH_BLOCKING", "1",
     "each kernel is waited for, so that a fault shows at its launch; slower, and a race may hide"},
    {MANY, "CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1",
     "the GPU's state is written when a kernel faults; slower, and at the end of many ranks it can hang"},
    {MANY, "CUDA_COREDUMP_FILE", "%s/gpu_core.%%h.%%p",
     "where that goes: open it with cuda-gdb, `target cudacore FILE`"},
    {MANY, "CUDA_COREDUMP_SHOW_PROGRESS", "1", "more words on stderr"},
    {MANY, "CUDA_COREDUMP_GENERATION_FLAGS",
     "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory",
     "a small dump: no contents of GPU memory in it"},
    {MANY, "TORCH_NCCL_TRACE_BUFFER_SIZE", "2000", "PyTorch keeps the last 2000 collectives of each rank; some memory"},
    {MANY, "TORCH_FR_BUFFER_SIZE", "2000", "the same, under its later name"},
    {MANY, "TORCH_NCCL_DUMP_ON_TIMEOUT", "1",
     "that record is written when a collective times out; the end takes longer"},
    {MANY, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "%s/nccl_trace_rank_", "where that goes"},
    {BOTH, "TORCH_SHOW_CPP_STACKTRACES", "1", "longer error messages"},
};

/* Words that follow a bad access on the host or on a GPU. */
static const char *const words[] = {
    "illegal memory access",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "device-side assert",
    "CUDA_ERROR_ASSERT",
    "misaligned address",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "unspecified launch failure",
    "CUDA_ERROR_LAUNCH_FAILED",
    "an illegal instruction was encountered",
    "Memory access fault by GPU",
    "Segmentation fault",
    "double free or corruption",
    "free(): invalid",
    "malloc(): ",
    "corrupted size vs. prev_size",
    "stack smashing detected",
    "AddressSanitizer: ",
};

static bool has_words(const char *bytes, int64_t n)
{
    for (int i = 0; i < BL_COUNT(words); i++)
        if (n > 0 && memmem(bytes, (size_t)n, words[i], strlen(words[i])) != NULL)
            return true;
    return false;
}

bool bl_run_is_memory_fault(const bl_supervise *supervise)
{
    int first = bl_supervise_facts_get(supervise)->first_failed;
    if (first < 0)
        return false;
    int number = bl_supervise_rank(supervise, first)->signal;
    if (number == SIGSEGV || number == SIGBUS)
        return true;
    for (int i = 0; i < 2 * bl_supervise_n_ranks(supervise); i++) {
        int64_t n;
        const char *tail = bl_supervise_tail(supervise, i / 2, i % 2, &n);
        if (has_words(tail, n))
            return true;
    }
    return false;
}

void bl_run_set(bl_run *run, const char *name, const char *value)
{
    if (run->n_set == BL_RUN_SET)
        return;
    bl_text *text = &run->set_text[run->n_set];
    bl_text_clear(text);
    bl_text_format(text, "%s=%s", name, value);
    run->cli->lacks_memory = run->cli->lacks_memory || text->failed;
    run->set[run->n_set++] = bl_text_get(text);
}

/* "%s" becomes the folder, "%%" a percent sign. */
static void fill(const char *value, const char *folder, bl_text *out)
{
    for (const char *at = value; *at != '\0'; at++) {
        if (at[0] == '%' && at[1] == 's')
            bl_text_add(out, folder);
        else
            bl_text_add_bytes(out, at, 1);
        at += *at == '%';
    }
}

void bl_run_locate(bl_run *run)
{
    int ranks = run->options->n > 1 ? MANY : ONE;
    char whole[PATH_MAX]; /* a program may change its folder */
    const char *folder = realpath(run->attempt_path, whole) != NULL ? whole : run->attempt_path;
    bl_text said = {0}, value = {0};
    for (int i = 0; i < BL_COUNT(rows); i++) {
        if ((rows[i].ranks & ranks) == 0)
            continue;
        bl_text_clear(&value);
        fill(rows[i].value, folder, &value);
        bl_run_set(run, rows[i].name, bl_text_get(&value));
        bl_text_format(&said, "    %s=%s\n        %s\n", rows[i].name, bl_text_get(&value), rows[i].effect);
    }
    bl_run_say("belay: running once more to locate the memory fault; core files as large as they may be, and\n%s",
               bl_text_get(&said));
    bl_text_fini(&said);
    bl_text_fini(&value);
}
