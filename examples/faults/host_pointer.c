/* SPDX-License-Identifier: Apache-2.0 */
/* F08: a kernel is given a pointer of the host: an array that was forgotten, or NULL.  A GPU ends with an illegal memory
 * access, and its context is gone.  So does a software device, which finds out by an inaccessible stand-in for what looks
 * like a pointer.  On the cpu the host's memory is legal; a NULL there is caught, and the cpu goes on. */
#include "gallery.h"

typedef struct pointer {
    const float *values;
} pointer;

BELAY_KERNEL(add_value, "*: y[N]! ->", work, i)
{
    uintptr_t place = (uintptr_t)BELAY_PARAMS(pointer, work)->values + (uintptr_t)(i + 1) * sizeof(float);
    BELAY_AT1(float, belay_view_of(work, 0), i) += *(const volatile float *)place; /* counts from 1 */
}

static void launch(gallery *g, const float *values)
{
    const pointer params = {values};
    belay_tensor y = belay_tensor_to(belay_zeros(g->ctx, BELAY_F32, belay_shape1(4)), g->device);
    belay_tensor_name_set(y, "y");
    belay_launch(
        g->ctx, &add_value,
        &(belay_launch_options){.n_items = 4, .operand = {y}, .params = &params, .params_bytes = sizeof params});
    if (!g->is_sim && values != NULL)
        gallery_expect(g, belay_tensor_item(belay_sum(y, NULL)) > 9);
}

static void give_array(gallery *g)
{
    static const float array[] = {0, 1, 2, 3, 4};
    launch(g, array);
}

static void give_null(gallery *g) { launch(g, NULL); }

static const injection injections[] = {
    {.what = "an array of the host",
     .run = give_array,
     .code = BELAY_MEM_ACCESS,
     .is_legal_on_cpu = true,
     .loses_device = true,
     .named = "op;site;tensor;device;step;value=the host's own memory"},
    {.what = "a NULL pointer",
     .run = give_null,
     .code = BELAY_MEM_ACCESS,
     .loses_device = true,
     .named = "op;site;tensor;device;step;value=a null pointer"},
};

GALLERY_MAIN("host pointer given to a kernel (F08)")
