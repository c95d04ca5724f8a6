/* SPDX-License-Identifier: Apache-2.0 */
/* Words about functions that the compiler checks for us. */
#ifndef BL_BASE_ATTRIBUTES_H
#define BL_BASE_ATTRIBUTES_H

#include <stddef.h> /* NULL, size_t */

#define BL_MUST_USE            __attribute__((warn_unused_result))
#define BL_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define BL_LIKELY(x)           __builtin_expect(!!(x), 1)
#define BL_UNLIKELY(x)         __builtin_expect(!!(x), 0)
#ifdef __clang__
#define BL_UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define BL_UNROLL_4 _Pragma("GCC unroll 4")
#endif

/* The one macro that returns: hands a failure up. */
#define TRY(expression)                                                                                                \
    do {                                                                                                               \
        belay_code try_code_ = (expression);                                                                           \
        if (BL_UNLIKELY(try_code_ != BELAY_OK))                                                                        \
            return try_code_;                                                                                          \
    } while (0)

#define BL_COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

#endif
