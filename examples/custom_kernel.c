/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel of one's own: picks one value of each row, y[i] = x[i, at[i]], as a loss picks the score of a class.
 * It is written once and runs on every device: custom_kernel [cpu|sim:0].  The second launch is given a column that the
 * table does not have: the report names item, tensor, axis, value and bound, the row reads as zero, the program goes on.
 * The third is given too many items, and is refused before it runs. */
#include <belay/launch.h>
#include <belay/op.h>

#include <stdio.h>

typedef struct pick_params {
    float factor;
} pick_params;

enum { PICK_X, PICK_AT, PICK_Y };

BELAY_KERNEL(pick, "N: x[NM] at:i32[N] -> y[N]", work, i)
{
    const pick_params *p = BELAY_PARAMS(pick_params, work);
    belay_kernel_view x = belay_view_of(work, PICK_X), at = belay_view_of(work, PICK_AT);
    float value = BELAY_GET2(float, x, i, BELAY_GET1(int32_t, at, i));
    BELAY_ASSERT_KERNEL(work, value >= 0, "a score is negative");
    BELAY_AT1(float, belay_view_of(work, PICK_Y), i) = p->factor * value;
}

enum { ROWS = 3, COLUMNS = 4 };

static void run(belay_context *ctx, belay_tensor x, const int32_t columns[ROWS], int64_t n_items)
{
    belay_scope scope = belay_scope_open(ctx);
    belay_tensor at = belay_tensor_from(ctx, BELAY_I32, belay_shape1(ROWS), columns, ROWS * sizeof *columns);
    belay_tensor y = belay_zeros(ctx, BELAY_F32, belay_shape1(ROWS));
    belay_launch(ctx, &pick,
                 &(belay_launch_options){.n_items = n_items,
                                         .operand = {x, belay_tensor_name_set(at, "columns"), y},
                                         .params = &(pick_params){.factor = 10},
                                         .params_bytes = sizeof(pick_params)});
    float picked[ROWS];
    if (belay_tensor_read(y, picked, sizeof picked) == BELAY_OK)
        printf("%g %g %g\n", (double)picked[0], (double)picked[1], (double)picked[2]);
    belay_scope_close(scope);
}

int main(int argc, char **argv)
{
    const float scores[ROWS * COLUMNS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    belay_context *ctx = belay_open(&(belay_options){.device = argc > 1 ? argv[1] : "cpu", .log = belay_log_stderr});
    belay_tensor x = belay_tensor_from(ctx, BELAY_F32, belay_shape2(ROWS, COLUMNS), scores, sizeof scores);
    belay_tensor_name_set(x, "scores");
    run(ctx, x, (const int32_t[]){3, 0, 2}, ROWS);
    run(ctx, x, (const int32_t[]){3, 4, 2}, ROWS);
    run(ctx, x, (const int32_t[]){3, 0, 2}, ROWS + 1);
    int64_t n_faults = belay_n_faults(ctx);
    printf("%d faults were named\n", (int)n_faults);
    belay_faults_clear(ctx); /* they were meant */
    int status = belay_close(ctx);
    return n_faults == 2 ? status : 1;
}
