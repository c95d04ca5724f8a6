/* SPDX-License-Identifier: Apache-2.0 */
/* F16: a program opens its device and forks afterwards; the child calls the runtime.  CUDA says "initialization error",
 * or hangs, as do locks that another thread held.  Belay knows the process that opened a context: the child's call is
 * refused by name, on the cpu too, and the parent goes on as if there had been no child. */
#include "gallery.h"

static belay_tensor tokens;

static void run_model(gallery *g) { belay_forward(g->model, tokens); }

static void make_tensor(gallery *g)
{
    gallery_expect(g, belay_tensor_is_nil(belay_zeros(g->ctx, BELAY_F32, (belay_shape){0})));
}

static void fork_and_use(gallery *g)
{
    tokens = gallery_batch(g).tokens;
    gallery_in_child(g, g->value == 0 ? run_model : make_tensor);
    belay_forward(g->model, tokens); /* the parent's own */
}

static const injection injections[] = {
    {.what = "the child runs the model", .run = fork_and_use, .value = 0, .code = BELAY_PLACE_FORK, .named = "site"},
    {.what = "the child makes a tensor", .run = fork_and_use, .value = 1, .code = BELAY_PLACE_FORK, .named = "site"},
};

GALLERY_MAIN("fork after init (F16)")
