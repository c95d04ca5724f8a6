/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "base/checked.h"
#include "triage/shapes.h"

static bool is_digit(const char *text, int64_t n, int64_t at) { return at < n && isdigit((unsigned char)text[at]); }

static bool read_number(const char *text, int64_t n, int64_t *at, int64_t *out)
{
    int64_t value = 0;
    bool fits = is_digit(text, n, *at);
    for (; is_digit(text, n, *at); (*at)++)
        fits = fits && bl_checked_mul(value, 10, &value) && bl_checked_add(value, text[*at] - '0', &value);
    *out = value;
    return fits;
}

/* Numbers with commas between, from *at on; true when they are two or more, and at most BL_SHAPE_DIMS. */
static bool read_dims(const char *text, int64_t n, int64_t *at, bl_text_shape *out)
{
    bool whole = true;
    out->n_dims = 0;
    while (is_digit(text, n, *at)) {
        int64_t dim = 0;
        whole = read_number(text, n, at, &dim) && out->n_dims < BL_SHAPE_DIMS && whole;
        if (whole)
            out->dims[out->n_dims++] = dim;
        if (*at >= n || text[*at] != ',')
            break;
        (*at)++;
        while (*at < n && text[*at] == ' ')
            (*at)++;
    }
    return whole && out->n_dims >= 2;
}

static void find_name(const char *text, int64_t open, bl_text_shape *out)
{
    static const char size[] = "torch.Size(";
    int64_t end = open, length = (int64_t)strlen(size);
    if (end >= length && memcmp(text + end - length, size, (size_t)length) == 0)
        end -= length;
    while (end > 0 && strchr("=: (", text[end - 1]) != NULL)
        end--;
    int64_t begin = end;
    while (begin > 0 && (isalnum((unsigned char)text[begin - 1]) || text[begin - 1] == '_'))
        begin--;
    out->name = text + begin;
    out->n_name = end - begin;
}

static bool is_opening(const char *text, int64_t n, int64_t at)
{
    static const char dims[] = "dimA = ";
    if ((text[at] == '[' || text[at] == '(') && is_digit(text, n, at + 1))
        return true;
    int64_t length = (int64_t)strlen(dims);
    return at + 1 >= length && text[at] == ' ' && memcmp(text + at + 1 - length, dims, (size_t)length) == 0 &&
           is_digit(text, n, at + 1);
}

bool bl_text_shape_next(const char *text, int64_t n, int64_t *at, bl_text_shape *out)
{
    for (; *at < n; (*at)++) {
        int64_t open = *at, begin = open + 1;
        if (!is_opening(text, n, open))
            continue;
        bool is_plain = text[open] == ' ';
        if (!read_dims(text, n, &begin, out) || (!is_plain && (begin >= n || strchr("])", text[begin]) == NULL)))
            continue;
        if (!bl_checked_product(out->dims, out->n_dims, &out->numel))
            out->numel = INT64_MAX;
        find_name(text, open, out);
        *at = begin;
        return true;
    }
    return false;
}

typedef struct dtype_word {
    const char *word;
    int size;
} dtype_word;

int bl_text_dtype_size(const char *text)
{
    static const dtype_word words[] = {{"float64", 8}, {"double", 8}, {"int64", 8}, {"float16", 2}, {"bfloat16", 2},
                                       {"bf16", 2},    {"fp16", 2},   {"half", 2},  {"HALF", 2},    {"Half", 2},
                                       {"float32", 4}, {"fp32", 4},   {"Float", 4}, {"int32", 4},   {"uint8", 1},
                                       {"float8", 1},  {"int8", 1}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(text, words[i].word) != NULL)
            return words[i].size;
    return 0;
}
