/* SPDX-License-Identifier: Apache-2.0 */
#include "triage/cuda_errors.h"

#include <stddef.h>
#include <string.h>

#include "base/attributes.h"
#include "triage/cursor.h"

static const bl_cuda_error rows[] = {
#define BL_CUDA_ERROR(domain, code, symbol, driver, survives, text, meaning, causes, action)                           \
    {code, BL_CUDA_DOMAIN_##domain, symbol, driver, BL_CUDA_SURVIVES_##survives, text, meaning, causes, action},
#include "triage/cuda_errors.def"
#undef BL_CUDA_ERROR
};

_Static_assert(sizeof rows / sizeof rows[0] == BL_N_CUDA_ERRORS, "cuda_errors.h tells the number of rows");

/* Texts that are no longer, or only sometimes, printed that way. */
static const struct {
    bl_cuda_domain domain;
    int code;
    const char *text;
} other_texts[] = {
    {BL_CUDA_DOMAIN_CUDA, 46, "all CUDA-capable devices are busy or unavailable"},
    {BL_CUDA_DOMAIN_CUDA, 222, "the provided PTX was compiled with an unsupported toolchain"},
    {BL_CUDA_DOMAIN_CUBLAS, 8, "an absent device architectural feature is required"},
    {BL_CUDA_DOMAIN_CUBLAS, 13, "the GPU program failed to execute"},
    {BL_CUDA_DOMAIN_NCCL, 1, "unhandled cuda error"},
    {BL_CUDA_DOMAIN_NCCL, 2, "unhandled system error"},
};

/* Texts that anybody may print; found where an error stands, never in the middle of a line. */
static const struct {
    bl_cuda_domain domain;
    int code;
} ordinary[] = {
    {BL_CUDA_DOMAIN_CUDA, 0},   {BL_CUDA_DOMAIN_CUDA, 1},   {BL_CUDA_DOMAIN_CUDA, 2},   {BL_CUDA_DOMAIN_CUDA, 3},
    {BL_CUDA_DOMAIN_CUDA, 301}, {BL_CUDA_DOMAIN_CUDA, 500}, {BL_CUDA_DOMAIN_CUDA, 600}, {BL_CUDA_DOMAIN_CUDA, 800},
    {BL_CUDA_DOMAIN_CUDA, 801}, {BL_CUDA_DOMAIN_CUDA, 909}, {BL_CUDA_DOMAIN_CUDA, 999}, {BL_CUDA_DOMAIN_CUBLAS, 0},
    {BL_CUDA_DOMAIN_NCCL, 0},
};

/* The runtime errors of CUDA before 10.1 that have another number today. */
static const struct {
    int old_code, code;
} old_codes[] = {
    {4, 719},  {6, 702},  {7, 701},  {8, 98},   {10, 101}, {11, 1},   {14, 205}, {15, 206}, {29, 4},   {30, 999},
    {33, 400}, {34, 600}, {36, 708}, {38, 100}, {39, 214}, {40, 302}, {41, 303}, {47, 200}, {48, 209}, {50, 704},
    {51, 705}, {59, 710}, {60, 711}, {61, 712}, {62, 713}, {63, 304}, {64, 217}, {70, 800}, {71, 801}, {72, 714},
    {73, 715}, {74, 716}, {75, 717}, {76, 718}, {77, 700}, {78, 218}, {80, 220}, {81, 221}, {82, 720},
};

const bl_cuda_error *bl_cuda_error_at(int i) { return i >= 0 && i < BL_N_CUDA_ERRORS ? &rows[i] : NULL; }

const bl_cuda_error *bl_cuda_error_find(bl_cuda_domain domain, int64_t code)
{
    for (int i = 0; i < BL_N_CUDA_ERRORS; i++)
        if (rows[i].domain == domain && rows[i].code == code)
            return &rows[i];
    return NULL;
}

const bl_cuda_error *bl_cuda_error_find_symbol(const char *symbol, int64_t n_bytes)
{
    for (int i = 0; n_bytes > 0 && i < BL_N_CUDA_ERRORS; i++) {
        const char *const names[] = {rows[i].symbol, rows[i].driver_symbol};
        for (int k = 0; k < 2; k++)
            if ((int64_t)strlen(names[k]) == n_bytes && memcmp(names[k], symbol, (size_t)n_bytes) == 0)
                return &rows[i];
    }
    return NULL;
}

/* Whether the rest begins with `form`, and not in the middle of a longer word; then its length, else 0. */
static int64_t begins_with(const bl_cursor *rest, const char *form)
{
    if (form[0] == '\0' || rest->at == rest->end || rest->at[0] != form[0] || !bl_cursor_sees(rest, form))
        return 0;
    const char *after = rest->at + strlen(form);
    bool goes_on = after < rest->end && bl_byte_is_word(after[-1]) && bl_byte_is_word(*after);
    return goes_on ? 0 : after - rest->at;
}

typedef struct found {
    const bl_cuda_error *row;
    int64_t n_bytes;
    bool by_text;
} found;

/* Of two forms of one length the first stays. */
static void keep_longer(found *best, const bl_cuda_error *row, int64_t n_bytes, bool by_text)
{
    if (n_bytes > best->n_bytes)
        *best = (found){row, n_bytes, by_text};
}

static found longest_form(const bl_cursor *rest)
{
    found best = {0};
    for (int i = 0; i < BL_N_CUDA_ERRORS; i++) {
        keep_longer(&best, &rows[i], begins_with(rest, rows[i].symbol), false);
        keep_longer(&best, &rows[i], begins_with(rest, rows[i].driver_symbol), false);
        keep_longer(&best, &rows[i], begins_with(rest, rows[i].text), true);
    }
    for (int i = 0; i < BL_COUNT(other_texts); i++) {
        int64_t n_bytes = begins_with(rest, other_texts[i].text);
        if (n_bytes > best.n_bytes)
            best = (found){bl_cuda_error_find(other_texts[i].domain, other_texts[i].code), n_bytes, true};
    }
    return best;
}

const bl_cuda_error *bl_cuda_error_find_text(const char *text, int64_t n_bytes, int64_t *n_taken)
{
    bl_cursor rest = {text, text + n_bytes};
    bl_cursor_skip_blanks(&rest);
    found best = longest_form(&rest);
    if (n_taken != NULL)
        *n_taken = best.row == NULL ? 0 : rest.at - text + best.n_bytes;
    return best.row;
}

static bool is_ordinary(const bl_cuda_error *row)
{
    for (int i = 0; i < BL_COUNT(ordinary); i++)
        if (row->domain == ordinary[i].domain && row->code == ordinary[i].code)
            return true;
    return false;
}

const bl_cuda_error *bl_cuda_error_search(const char *line, int64_t n_bytes, int64_t *at)
{
    bl_cursor rest = {line, line + n_bytes};
    for (; rest.at < rest.end; rest.at++) {
        if (rest.at > line && bl_byte_is_word(rest.at[-1]))
            continue;
        found best = longest_form(&rest);
        if (best.row == NULL || (best.by_text && is_ordinary(best.row)))
            continue;
        if (at != NULL)
            *at = rest.at - line;
        return best.row;
    }
    return NULL;
}

int bl_cuda_error_modern(int64_t old_code)
{
    for (int i = 0; i < BL_COUNT(old_codes); i++)
        if (old_codes[i].old_code == old_code)
            return old_codes[i].code;
    return -1;
}

bl_cuda_reading bl_cuda_error_read(int64_t code, const char *text, int64_t n_text)
{
    bl_cuda_reading reading = {0};
    const bl_cuda_error *by_text = n_text > 0 ? bl_cuda_error_find_text(text, n_text, NULL) : NULL;
    const bl_cuda_error *today = bl_cuda_error_find(BL_CUDA_DOMAIN_CUDA, code);
    int modern = bl_cuda_error_modern(code);
    const bl_cuda_error *then = modern < 0 ? NULL : bl_cuda_error_find(BL_CUDA_DOMAIN_CUDA, modern);
    if (by_text != NULL) {
        reading.row = by_text;
        reading.is_old_number = by_text == then;
    } else if (today != NULL) {
        reading.row = today;
        reading.other = then;
    } else {
        reading.row = then;
        reading.is_old_number = then != NULL;
    }
    return reading;
}
