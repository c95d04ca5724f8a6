/* SPDX-License-Identifier: Apache-2.0 */
/* The classic skeleton of data-parallel training, whole: a group, a small model, ten steps.
 *
 *   belay run -n 4 --mpi -- ddp_skeleton          four ranks of this machine; `--hostfile hosts` for others
 *   mpirun -n 4 ddp_skeleton sim                  each on a software device of its own
 *   srun --ntasks=4 ddp_skeleton                  inside of a Slurm allocation
 *
 * Rank and size are those that mpirun or srun set.  RANK and WORLD_SIZE alone start nothing and are refused.  A rank that
 * does not come within a minute is named on all others. */
#include <belay/belay.h>
#include <stdio.h>
#include <unistd.h>

enum { BATCH = 8, STEPS = 10, IN = 20, HIDDEN = 10, OUT = 2 };

/* The loss of this rank's batch: random inputs and targets, other ones on each rank and in each step. */
static belay_tensor step_loss(belay_context *ctx, belay_reducer *ddp, belay_group *group, int step)
{
    int rank = belay_group_rank(group), size = belay_group_size(group);
    belay_position_set(ctx, 0, (uint32_t)(step * size + rank));
    belay_tensor x = belay_normal(ctx, BELAY_F32, belay_shape2(BATCH, IN), 0, 1);
    belay_tensor target = belay_normal(ctx, BELAY_F32, belay_shape2(BATCH, OUT), 0, 1);
    return belay_mse(belay_ddp_forward(ddp, x), target, BELAY_MEAN);
}

static belay_code train(belay_context *ctx, belay_group *group)
{
    belay_module *model = belay_mlp(ctx, &(belay_mlp_options){.sizes = {IN, HIDDEN, OUT}}); /* Linear, ReLU, Linear */
    belay_reducer *ddp = belay_ddp(model, group, &(belay_ddp_options){.batch = BATCH});
    belay_optimizer *sgd = belay_sgd(model, &(belay_sgd_options){.lr = 0.01});
    belay_code code = belay_reducer_is_nil(ddp) ? BELAY_COMM_FAILED : BELAY_OK;
    for (int step = 0; code == BELAY_OK && step < STEPS; step++) {
        belay_scope scope = belay_scope_open(ctx);
        belay_tensor loss = step_loss(ctx, ddp, group, step);
        belay_backward(loss);      /* gradients are averaged while it runs */
        belay_optimizer_step(sgd); /* on all ranks, or on none */
        if (belay_group_rank(group) == 0)
            printf("step %d: loss %.4f\n", step, belay_tensor_item(loss));
        belay_scope_close(scope);
        code = belay_group_barrier(group);
    }
    belay_optimizer_free(sgd);
    belay_reducer_free(ddp);
    belay_module_free(model);
    return code;
}

int main(int argc, char **argv)
{
    belay_context *ctx =
        belay_open(&(belay_options){.seed = 1, .log = belay_log_stderr}); /* the same seed everywhere */
    belay_group *group = belay_group_open(ctx, &(belay_group_options){.timeout = 60});
    if (!belay_group_is_nil(group) && belay_group_bind(group, argc > 1 ? argv[1] : "cpu") == BELAY_OK)
        (void)!train(ctx, group);
    belay_group_close(group);
    int status = belay_close(ctx);
    fflush(stdout);
    if (status != 0) /* exit handlers of MPI wait for ranks, and one may be dead */
        _exit(status);
    return status;
}
