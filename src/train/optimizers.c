/* SPDX-License-Identifier: Apache-2.0 */
/* The makers of <belay/optim.h> that take a module: its parameters that want a gradient, under their dotted names.
 * They stand here because optim/ knows no modules and nn/ no optimizers. */
#include <belay/nn.h>

#include <inttypes.h>

#include "base/memory.h"
#include "nn/module.h"
#include "optim/optim.h"

typedef struct walk {
    belay_tensor *parameter;
    const char **name;
    bl_optim_list list;
} walk;

static void walk_fini(walk *w)
{
    bl_free(w->parameter);
    bl_free(w->name);
}

/* Lists the module's parameters; false after mem.exhausted. */
static bool walk_init(walk *w, belay_context *context, const belay_module *module)
{
    int64_t n = belay_module_n_parameters(module), wanted = 0;
    *w = (walk){.parameter = bl_alloc(n, sizeof *w->parameter), .name = bl_alloc(n, sizeof *w->name)};
    if (w->parameter == NULL || w->name == NULL) {
        walk_fini(w);
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for an optimizer of %" PRId64 " parameters", n);
        return false;
    }
    for (int64_t i = 0; i < n; i++) {
        belay_tensor parameter = belay_module_parameter(module, i);
        if (!belay_tensor_requires_grad(parameter))
            continue;
        w->parameter[wanted] = parameter;
        w->name[wanted++] = belay_module_parameter_name(module, i);
    }
    w->list = (bl_optim_list){w->parameter, w->name, wanted};
    return true;
}

static belay_optimizer *adam_of(const belay_module *module, const belay_adam_options *options, bool is_decoupled)
{
    belay_context *context = bl_module_use(module);
    walk w;
    if (context == NULL || !walk_init(&w, context, module))
        return bl_optim_nil();
    belay_optimizer *o = bl_optim_adam(context, &w.list, options, is_decoupled);
    walk_fini(&w);
    return o;
}

belay_optimizer *belay_sgd(belay_module *module, const belay_sgd_options *options)
{
    BL_ENTER(bl_module_context(module));
    belay_context *context = bl_module_use(module);
    walk w;
    if (context == NULL || !walk_init(&w, context, module))
        return bl_optim_nil();
    belay_optimizer *o = bl_optim_sgd(context, &w.list, options);
    walk_fini(&w);
    return o;
}

belay_optimizer *belay_adam(belay_module *module, const belay_adam_options *options)
{
    BL_ENTER(bl_module_context(module));
    return adam_of(module, options, false);
}

belay_optimizer *belay_adamw(belay_module *module, const belay_adam_options *options)
{
    BL_ENTER(bl_module_context(module));
    return adam_of(module, options, true);
}
