/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/ranks.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ranks ranks_open_unbound(double timeout)
{
    ranks r = {.context = told_open()};
    assert_true(belay_is_open(r.context));
    r.group = belay_group_open(r.context, &(belay_group_options){.timeout = timeout});
    told_expect("%s", "");
    assert_false(belay_group_is_nil(r.group));
    r.rank = belay_group_rank(r.group);
    r.size = belay_group_size(r.group);
    return r;
}

ranks ranks_open(double timeout)
{
    ranks r = ranks_open_unbound(timeout);
    assert_int_equal(belay_group_bind(r.group, "cpu"), BELAY_OK);
    return r;
}

void ranks_close(ranks *r) { told_close(r->context); }

/* "2.1 s" -> "T s" */
void ranks_steady(const char *text, char *out, size_t size)
{
    size_t n = 0;
    while (*text != '\0' && n + 2 < size) {
        const char *end = text;
        while (isdigit((unsigned char)*end))
            end++;
        if (end > text && end[0] == '.' && isdigit((unsigned char)end[1]) && end[2] == ' ' && end[3] == 's') {
            out[n++] = 'T';
            text = end + 2;
        } else if (end > text) {
            while (text < end && n + 2 < size)
                out[n++] = *text++;
        } else {
            out[n++] = *text++;
        }
    }
    out[n] = '\0';
}

void ranks_expect(const char *format, ...)
{
    static char got[16384], wanted[16384];
    va_list args;
    va_start(args, format);
    vsnprintf(wanted, sizeof wanted, format, args);
    va_end(args);
    ranks_steady(told(), got, sizeof got);
    assert_words_equal(got, wanted);
    told_clear();
}

const char *ranks_start(const ranks *r)
{
    static char line[128];
    snprintf(line, sizeof line, "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank %d\n", r->rank);
    return line;
}

int ranks_self(void)
{
    const char *text = getenv("OMPI_COMM_WORLD_RANK");
    return text != NULL ? atoi(text) : -1;
}
