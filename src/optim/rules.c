/* SPDX-License-Identifier: Apache-2.0 */
/* The makers: options proved and turned into a rule. */
#include <inttypes.h>
#include <math.h>

#include "base/memory.h"
#include "optim/optim.h"

belay_optimizer *bl_optim_nil(void)
{
    static belay_optimizer nil;
    return &nil;
}

/* One option against its range; the first that fails is told and ends the proof. */
static bool check(belay_context *context, const char *name, double value, bool fits, const char *range)
{
    if (!fits)
        bl_context_raise(context, BELAY_CONF_VALUE, "%s is %g, outside %s", name, bl_text_real(value), range);
    return fits;
}

/* An option that is 0 when `is_none` says so. */
static bool check_without(belay_context *context, const char *name, bool is_none, double value)
{
    if (is_none && value != 0)
        bl_context_raise(context, BELAY_CONF_CONFLICT, "no_%s says that %s is 0, and %s is %g", name, name, name,
                         bl_text_real(value));
    return !is_none || value == 0;
}

static bool check_schedule(belay_context *context, const belay_schedule *s)
{
    if ((int)s->kind < 0 || s->kind > BELAY_SCHEDULE_LINEAR) {
        bl_context_raise(context, BELAY_CONF_VALUE, "schedule.kind is %d, which is no kind", (int)s->kind);
        return false;
    }
    bool has_period = s->kind != BELAY_SCHEDULE_CONSTANT;
    return check(context, "schedule.period", (double)s->period, has_period ? s->period > 0 : s->period >= 0,
                 has_period ? "[1, inf)" : "[0, inf)") &&
           check(context, "schedule.gamma", s->gamma, s->gamma >= 0 && isfinite(s->gamma), "[0, inf)") &&
           check(context, "schedule.end", s->end, s->end >= 0 && isfinite(s->end), "[0, inf)") &&
           check(context, "schedule.warmup", (double)s->warmup, s->warmup >= 0, "[0, inf)") &&
           check(context, "schedule.warmup_start", s->warmup_start, s->warmup_start >= 0 && s->warmup_start <= 1,
                 "[0, 1]");
}

static bool check_rule(belay_context *context, const bl_optim_rule *rule, double decay)
{
    return check(context, "lr", rule->lr, rule->lr > 0 && isfinite(rule->lr), "(0, inf)") &&
           check(context, "weight_decay", decay, decay >= 0 && isfinite(decay), "[0, inf)") &&
           check(context, "clip", rule->clip, rule->clip >= 0 && isfinite(rule->clip), "[0, inf)") &&
           check_schedule(context, &rule->schedule);
}

belay_optimizer *bl_optim_sgd(belay_context *context, const bl_optim_list *list, const belay_sgd_options *options)
{
    static const belay_sgd_options none = {0};
    const belay_sgd_options *o = options != NULL ? options : &none;
    bl_optim_rule rule = {.op = BL_OP_optim_sgd, .lr = o->lr, .clip = o->clip, .schedule = o->schedule};
    rule.moment[0] = o->momentum != 0 ? "momentum_buffer" : NULL;
    rule.params.f[0] = o->momentum;
    rule.params.f[1] = o->dampening;
    rule.params.f[2] = o->weight_decay;
    rule.params.i[1] = o->nesterov;
    if (!belay_is_open(context) || !check_rule(context, &rule, o->weight_decay) ||
        !check(context, "momentum", o->momentum, o->momentum >= 0 && isfinite(o->momentum), "[0, inf)") ||
        !check(context, "dampening", o->dampening, isfinite(o->dampening), "(-inf, inf)"))
        return bl_optim_nil();
    if (o->nesterov && (o->momentum == 0 || o->dampening != 0)) {
        bl_context_raise(context, BELAY_CONF_CONFLICT,
                         "nesterov needs a momentum and no dampening; momentum is %g, dampening %g", o->momentum,
                         o->dampening);
        return bl_optim_nil();
    }
    belay_optimizer *made = bl_optim_new(context, list, &rule);
    return made != NULL ? made : bl_optim_nil();
}

belay_optimizer *bl_optim_adam(belay_context *context, const bl_optim_list *list, const belay_adam_options *options,
                               bool is_decoupled)
{
    static const belay_adam_options none = {0};
    const belay_adam_options *o = options != NULL ? options : &none;
    bl_optim_rule rule = {.op = BL_OP_optim_adam,
                          .moment = {"exp_avg", "exp_avg_sq", o->amsgrad ? "max_exp_avg_sq" : NULL},
                          .lr = o->lr,
                          .clip = o->clip,
                          .schedule = o->schedule};
    double *f = rule.params.f;
    f[0] = o->beta1 != 0 || o->no_beta1 ? o->beta1 : 0.9;
    f[1] = o->beta2 != 0 || o->no_beta2 ? o->beta2 : 0.999;
    f[2] = o->eps != 0 ? o->eps : 1e-8;
    f[3] = o->weight_decay;
    rule.params.i[1] = is_decoupled;
    if (!belay_is_open(context) || !check_rule(context, &rule, o->weight_decay) ||
        !check(context, "beta1", f[0], f[0] >= 0 && f[0] < 1, "[0, 1)") ||
        !check(context, "beta2", f[1], f[1] >= 0 && f[1] < 1, "[0, 1)") ||
        !check_without(context, "beta1", o->no_beta1, o->beta1) ||
        !check_without(context, "beta2", o->no_beta2, o->beta2) ||
        !check(context, "eps", f[2], f[2] > 0 && isfinite(f[2]), "(0, inf)"))
        return bl_optim_nil();
    belay_optimizer *made = bl_optim_new(context, list, &rule);
    return made != NULL ? made : bl_optim_nil();
}

belay_optimizer *belay_sgd_over(belay_context *context, const belay_tensor *parameters, int64_t n,
                                const belay_sgd_options *options)
{
    BL_ENTER(context);
    return bl_optim_sgd(context, &(bl_optim_list){parameters, NULL, n}, options);
}

belay_optimizer *belay_adam_over(belay_context *context, const belay_tensor *parameters, int64_t n,
                                 const belay_adam_options *options)
{
    BL_ENTER(context);
    return bl_optim_adam(context, &(bl_optim_list){parameters, NULL, n}, options, false);
}

belay_optimizer *belay_adamw_over(belay_context *context, const belay_tensor *parameters, int64_t n,
                                  const belay_adam_options *options)
{
    BL_ENTER(context);
    return bl_optim_adam(context, &(bl_optim_list){parameters, NULL, n}, options, true);
}
