/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer's step, gated on the device.  A refused step (a fault in the window, or gradients that are not finite)
 * changes nothing: not a weight, not Adam's t, not the schedule's position.
 *
 * The step's state is f64[8] in device memory, written by optim_prepare and read by the updates after it:
 *   0 apply (1 or 0)   1 learning rate   2 factor on gradients (clip times 1 / loss scale)   3 schedule position
 *   4 global gradient norm, unscaled, before clipping   5 steps applied   6 steps refused for a fault
 *   7 steps refused for gradients that were not finite
 *
 * A loss scale's state is f64[8] likewise, read and marked by optim_prepare, moved by scaler_update:
 *   0 scale, a value of f32   1 windows without an overflow since it moved
 *   2 an overflow since the last update   3 windows decided since then, those with a fault left out
 *   4 overflows in a row   5 windows applied   6 updates that lowered the scale   7 the last one heard of an overflow */
#if defined BL_BODIES

#if BL_IS_FLOAT
#define BL_CHUNK 1024

/* The learning rate's factor at a position.  i[0] is the kind; f[1] to f[4] its numbers:
 *   0 constant: 1
 *   1 step:     f[2]^floor(position / f[1])
 *   2 cosine:   f[2] + (1 - f[2]) (1 + cos(pi position / f[1])) / 2, Loshchilov and Hutter, "SGDR" (2017); it climbs
 *               again beyond the period, as PyTorch's does
 *   3 linear:   1 + (f[2] - 1) min(position / f[1], 1)
 * f[3] > 0 warms up: over positions below f[3] the factor is f[4] + (1 - f[4]) position / f[3], and the kind's position
 * counts from there. */
BL_FN double BL_(schedule_factor)(const bl_params *p, double position)
{
    double warm = p->f[3], period = p->f[1] > 0 ? p->f[1] : 1, end = p->f[2];
    if (position < warm)
        return p->f[4] + (1 - p->f[4]) * position / warm;
    double at = position - warm;
    if (p->i[0] == 1)
        return pow(end, floor(at / period));
    if (p->i[0] == 2)
        return end + (1 - end) * (1 + cos(3.14159265358979323846 * (at / period))) / 2;
    if (p->i[0] == 3)
        return 1 + (end - 1) * (at < period ? at / period : 1);
    return 1;
}

/* A window that no fault closed, under a loss scale: marked for the update, and told to the host. */
BL_FN void BL_(scaler_mark)(double *scaler, bl_window_words *window, bool overflowed, bool applied, bool fixed)
{
    window->scale = (float)scaler[0];
    window->refused = (uint32_t)(scaler[4] < 1e9 ? scaler[4] + 1 : 1e9);
    window->refused |= (scaler[5] > 0 ? BL_WINDOW_SETTLED : 0) | (fixed ? BL_WINDOW_FIXED : 0);
    scaler[2] = overflowed || scaler[2] != 0;
    scaler[3] += 1;
    scaler[5] += applied;
}

/* partial[C] -> state; f[0] = base rate, f[1..4] and i[0] as above, f[5] = largest norm or 0, f[6] = 1 / divisor,
 * i[1] = the gradients are divided by the loss scale already, i[2] = it is fixed */
BL_FN void BL_(optim_prepare)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)row, (void)bad;
    if (!BL_ROW_LEADER)
        return;
    const double *partial = BL_PTR(double, 0);
    double *state = BL_PTR(double, 1), sum = 0;
    int64_t n_good = 0; /* chunks in front of the first that is not finite */
    for (int64_t i = 0; i < l->dim[0]; i++) {
        sum += partial[i];
        n_good += n_good == i && partial[i] - partial[i] == 0;
    }
    double *scaler = BL_PTR(double, 2);
    double factor = scaler != 0 && l->params.i[1] == 0 ? l->params.f[6] / scaler[0] : l->params.f[6];
    double norm = sqrt(sum) * factor;
    bl_window_words *window = &l->ring->window[l->window];
    double clip = l->params.f[5] > 0 ? l->params.f[5] / (norm + 1e-6) : 1, scale = (clip < 1 ? clip : 1) * factor;
    double rate = l->params.f[0] * BL_(schedule_factor)(&l->params, state[3]);
    /* What the updates multiply by has to be a number in f32 too: a tiny divisor or loss scale would make an infinity. */
    if ((float)scale - (float)scale != 0 || (float)rate - (float)rate != 0)
        norm = INFINITY;
    bool finite = norm - norm == 0;
    bool faulted = BL_OBSERVE(&window->gate) != 0;
    if (scaler != 0 && !faulted)
        BL_(scaler_mark)(scaler, window, sum - sum != 0, finite, l->params.i[2] != 0);
    state[4] = norm;
    state[0] = finite && !faulted;
    state[6] += faulted;
    state[7] += !faulted && !finite;
    BL_PUBLISH(&window->outcome, faulted  ? BL_WINDOW_FAULTED
                                 : finite ? BL_WINDOW_APPLIED
                                          : BL_WINDOW_OVERFLOWED + (uint32_t)n_good);
    if (state[0] == 0)
        return;
    state[1] = rate;
    state[2] = scale;
    state[3] += 1;
    state[5] += 1;
}

/* g[N] -> partial[N / 1024], sums of squares of chunks, in double: a finite f32 gradient has a finite norm */
BL_FN void BL_(optim_squares)(const bl_launch *l, int64_t chunk, bl_bad *bad)
{
    (void)bad;
    int64_t begin = chunk * BL_CHUNK, n = l->dim[0] - begin;
    const BL_T *g = BL_PTR(BL_T, 0) + begin;
    double sum;
    n = n < BL_CHUNK ? n : BL_CHUNK;
    BL_ROW_SUM_F64(sum, j, n, (double)BL_LOAD(g, j) * (double)BL_LOAD(g, j));
    if (BL_ROW_LEADER)
        BL_PTR(double, 1)[chunk] = sum;
}

/* g[N]! scaler[S]: divided by the scale where they lie */
BL_FN void BL_(scaler_unscale)(const bl_launch *l, int64_t chunk, bl_bad *bad)
{
    (void)bad;
    int64_t begin = chunk * BL_CHUNK, n = l->dim[0] - begin;
    BL_T *g = BL_PTR(BL_T, 0) + begin;
    BL_REAL factor = (BL_REAL)(1 / BL_PTR(double, 1)[0]);
    n = n < BL_CHUNK ? n : BL_CHUNK;
    BL_EACH(j, n) BL_STORE(g, j, BL_LOAD(g, j) * factor);
}

/* scaler[S]!; f = growth factor, backoff factor, windows in a row; i[0] = the scale is fixed.  PyTorch's rule, in double
 * and rounded to f32 as there; nothing stops it from falling to 0. */
BL_FN void BL_(scaler_update)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)row, (void)bad;
    double *scaler = BL_PTR(double, 0);
    if (!BL_ROW_LEADER || scaler[3] == 0)
        return;
    bool overflowed = scaler[2] != 0, fixed = l->params.i[0] != 0;
    double was = scaler[0], grown = (double)(float)(was * l->params.f[0]),
           lowered = (double)(float)(was * l->params.f[1]);
    scaler[1] = overflowed ? 0 : scaler[1] + 1;
    if (overflowed && !fixed)
        scaler[0] = lowered;
    if (scaler[1] >= l->params.f[2]) {
        scaler[0] = fixed || grown - grown != 0 ? scaler[0] : grown;
        scaler[1] = 0;
    }
    scaler[2] = 0;
    scaler[3] = 0;
    scaler[4] = overflowed ? scaler[4] + 1 : 0;
    scaler[6] += scaler[0] < was;
    scaler[7] = overflowed;
}

/* p[N]! g[N] buffer[N]?! t[T] state[S]; i[0] = which t, i[1] = Nesterov; f = momentum, dampening, decay.
 * Sutskever et al. (2013) in PyTorch's form: the first buffer is the gradient itself. */
BL_FN void BL_(optim_sgd)(const bl_launch *l, int64_t chunk, bl_bad *bad)
{
    (void)bad;
    const double *state = BL_PTR(double, 4);
    if (state[0] == 0)
        return;
    int64_t begin = chunk * BL_CHUNK, n = l->dim[0] - begin;
    BL_T *BL_RESTRICT p = BL_PTR(BL_T, 0) + begin;
    const BL_T *BL_RESTRICT g = BL_PTR(BL_T, 1) + begin;
    BL_T *buffer = BL_PTR(BL_T, 2);
    bool first = BL_PTR(double, 3)[l->params.i[0]] == 0, nesterov = l->params.i[1] != 0;
    BL_REAL rate = (BL_REAL)state[1], factor = (BL_REAL)state[2], decay = (BL_REAL)l->params.f[2];
    BL_REAL momentum = (BL_REAL)l->params.f[0], fresh = first ? 1 : (BL_REAL)(1 - l->params.f[1]);
    BL_REAL kept = first ? 0 : momentum;
    n = n < BL_CHUNK ? n : BL_CHUNK;
    if (buffer == 0) {
        BL_EACH(j, n) BL_STORE(p, j, BL_LOAD(p, j) - rate * (BL_LOAD(g, j) * factor + decay * BL_LOAD(p, j)));
        return;
    }
    BL_T *BL_RESTRICT m = buffer + begin;
    BL_EACH(j, n)
    {
        BL_REAL grad = BL_LOAD(g, j) * factor + decay * BL_LOAD(p, j);
        BL_REAL moving = kept * (first ? 0 : BL_LOAD(m, j)) + fresh * grad;
        BL_STORE(m, j, moving);
        BL_STORE(p, j, BL_LOAD(p, j) - rate * (nesterov ? grad + momentum * moving : moving));
    }
}

/* p[N]! g[N] m[N]! v[N]! top[N]?! t[T] state[S]; i[0] = which t, i[1] = decoupled; f = beta1, beta2, eps, decay.
 * Kingma and Ba (2015); decoupled decay: Loshchilov and Hutter (2019); top: AMSGrad, Reddi et al. (2018). */
BL_FN void BL_(optim_adam)(const bl_launch *l, int64_t chunk, bl_bad *bad)
{
    (void)bad;
    const double *state = BL_PTR(double, 6);
    if (state[0] == 0)
        return;
    int64_t begin = chunk * BL_CHUNK, n = l->dim[0] - begin;
    BL_T *BL_RESTRICT p = BL_PTR(BL_T, 0) + begin;
    const BL_T *BL_RESTRICT g = BL_PTR(BL_T, 1) + begin;
    BL_T *BL_RESTRICT m = BL_PTR(BL_T, 2) + begin;
    BL_T *BL_RESTRICT v = BL_PTR(BL_T, 3) + begin;
    BL_T *top = BL_PTR(BL_T, 4);
    double t = BL_PTR(double, 5)[l->params.i[0]] + 1, rate = state[1], decay = l->params.f[3];
    bool decoupled = l->params.i[1] != 0;
    BL_REAL b1 = (BL_REAL)l->params.f[0], b2 = (BL_REAL)l->params.f[1], eps = (BL_REAL)l->params.f[2];
    BL_REAL c1 = (BL_REAL)(1 - l->params.f[0]), c2 = (BL_REAL)(1 - l->params.f[1]);
    BL_REAL step = (BL_REAL)(rate / (1 - pow(l->params.f[0], t)));
    BL_REAL root = (BL_REAL)(1 / sqrt(1 - pow(l->params.f[1], t)));
    BL_REAL shrink = decoupled ? (BL_REAL)(1 - rate * decay) : 1, coupled = decoupled ? 0 : (BL_REAL)decay;
    BL_REAL factor = (BL_REAL)state[2];
    n = n < BL_CHUNK ? n : BL_CHUNK;
    BL_EACH(j, n)
    {
        BL_REAL grad = BL_LOAD(g, j) * factor + coupled * BL_LOAD(p, j);
        BL_STORE(m, j, b1 * BL_LOAD(m, j) + c1 * grad);
        BL_STORE(v, j, b2 * BL_LOAD(v, j) + c2 * grad * grad);
    }
    if (top == 0) {
        BL_EACH(j, n)
        {
            BL_REAL bottom = BL_(bl_sqrt)(BL_LOAD(v, j)) * root + eps;
            BL_STORE(p, j, BL_LOAD(p, j) * shrink - step * BL_LOAD(m, j) / bottom);
        }
        return;
    }
    BL_T *BL_RESTRICT high = top + begin;
    BL_EACH(j, n)
    {
        BL_STORE(high, j, BL_(larger)(BL_LOAD(high, j), BL_LOAD(v, j)));
        BL_REAL bottom = BL_(bl_sqrt)(BL_LOAD(high, j)) * root + eps;
        BL_STORE(p, j, BL_LOAD(p, j) * shrink - step * BL_LOAD(m, j) / bottom);
    }
}

/* used[T] state[S] -> t[T]: what had a gradient ages by one, if the step was applied. */
BL_FN void BL_(optim_age)(const bl_launch *l, int64_t row, bl_bad *bad)
{
    (void)bad;
    if (BL_ROW_LEADER && BL_PTR(double, 1)[0] != 0)
        BL_PTR(double, 2)[row] += BL_PTR(uint8_t, 0)[row] != 0;
}
#endif

#elif defined BL_ROWS

BL_ROW(LANE, optim_prepare, FLOAT, .signature = "1: partial:f64[C] state:f64[S]! scaler:f64[S]?! ->", .internal = true,
       .options =
           "f[0] rate, f[1..4] and i[0] schedule, f[5] largest norm, f[6] 1 / divisor, i[1] unscaled already, i[2] "
           "fixed",
       .formula = "clip = min(1, largest / (norm + 1e-6)); apply = finite and no fault",
       .says = "Decides whether the step is applied, and its rate and clipping factor.")
BL_ROW(LANE, optim_squares, FLOAT, .signature = "N/1024: g[N] partial:f64[C]! ->", .internal = true,
       .formula = "partial[c] = sum over chunk c of g^2", .says = "Sums of squares of a gradient's chunks.")
BL_ROW(LANE, scaler_unscale, FLOAT, .signature = "N/1024: g[N]! scaler:f64[S] ->", .internal = true,
       .formula = "g /= scale", .says = "Divides a gradient by the loss scale.")
BL_ROW(LANE, scaler_update, FLOAT, .signature = "1: scaler:f64[S]! ->", .internal = true,
       .options = "f = growth factor, backoff factor, interval; i[0] fixed",
       .formula = "overflow: scale *= backoff; interval windows without: scale *= growth",
       .says = "Moves the loss scale at a window's end.")
BL_ROW(LANE, optim_sgd, FLOAT, .signature = "N/1024: p[N]! g[N] buffer[N]?! t:f64[T] state:f64[S] ->", .internal = true,
       .options = "f = momentum, dampening, decay; i = which t, Nesterov",
       .formula = "b = momentum b + (1 - dampening) g; p -= rate b", .says = "One step of SGD over a parameter.")
BL_ROW(LANE, optim_adam, FLOAT, .signature = "N/1024: p[N]! g[N] m[N]! v[N]! top[N]?! t:f64[T] state:f64[S] ->",
       .internal = true, .options = "f = beta1, beta2, eps, decay; i = which t, decoupled",
       .formula = "p -= rate mhat / (sqrt(vhat) + eps)", .says = "One step of Adam or AdamW over a parameter.")
BL_ROW(LANE, optim_age, FLOAT, .signature = "T: used:u8[T] state:f64[S] t:f64[T]! ->", .internal = true,
       .formula = "t += used", .says = "Ages the parameters that had a gradient.")

#endif
