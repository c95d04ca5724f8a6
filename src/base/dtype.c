/* SPDX-License-Identifier: Apache-2.0 */
/* Names and sizes of dtypes. */
#include <belay/types.h>

#include "base/attributes.h"

static const struct {
    const char *name;
    int size;
    bool is_float;
} dtype_rows[BELAY_N_DTYPES] = {
    [BELAY_F32] = {"f32", 4, true},  [BELAY_F64] = {"f64", 8, true},  [BELAY_BF16] = {"bf16", 2, true},
    [BELAY_F16] = {"f16", 2, true},  [BELAY_I64] = {"i64", 8, false}, [BELAY_I32] = {"i32", 4, false},
    [BELAY_U16] = {"u16", 2, false}, [BELAY_U8] = {"u8", 1, false},   [BELAY_BOOL] = {"bool", 1, false},
};

static bool known(belay_dtype dtype) { return (int)dtype >= 0 && dtype < BELAY_N_DTYPES; }

const char *belay_dtype_name(belay_dtype dtype) { return known(dtype) ? dtype_rows[dtype].name : "?"; }
int64_t belay_dtype_size(belay_dtype dtype) { return known(dtype) ? dtype_rows[dtype].size : 0; }
bool belay_dtype_is_float(belay_dtype dtype) { return known(dtype) && dtype_rows[dtype].is_float; }
