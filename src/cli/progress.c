/* SPDX-License-Identifier: Apache-2.0 */
/* How a training run goes: a bar on a terminal, lines elsewhere. */
#include <belay/train.h>
#include <math.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"

#define SECOND INT64_C(1000000000)

/* Where lines go: stdout is the document's with --json. */
static FILE *lines(const bl_cli *cli) { return cli->json ? stderr : stdout; }

void bl_cli_bar_clear(bl_cli *cli)
{
    if (cli->bar_width > 0)
        fputs("\r\x1b[K", stderr);
    cli->bar_width = 0;
}

/* "1:02:03", "4:05" */
static int print_time(FILE *out, double seconds)
{
    if (!(seconds >= 0 && seconds < 3.6e8))
        return fprintf(out, "-");
    int64_t s = (int64_t)(seconds + 0.5);
    if (s >= 3600)
        return fprintf(out, "%d:%02d:%02d", (int)(s / 3600), (int)(s / 60 % 60), (int)(s % 60));
    return fprintf(out, "%d:%02d", (int)(s / 60), (int)(s % 60));
}

/* Seconds until the last epoch ends, by the batches done so far. */
static double time_left(const belay_progress *p)
{
    double done = (double)p->epoch * (double)p->n_batches + (double)p->batch;
    double all = (double)p->n_epochs * (double)p->n_batches;
    return done > 0 ? p->seconds / done * (all - done) : NAN;
}

static int print_figures(FILE *out, const belay_progress *p)
{
    int n = fprintf(out, "epoch %lld/%lld  batch %lld/%lld", (long long)p->epoch + 1, (long long)p->n_epochs,
                    (long long)p->batch, (long long)p->n_batches);
    n += fprintf(out, "  loss %.4f  %.0f samples/s  faults %lld  left ", p->loss, p->samples_per_second,
                 (long long)p->n_faults);
    return n + print_time(out, time_left(p));
}

static void draw_bar(bl_cli *cli, const belay_progress *p)
{
    enum { CELLS = 20 };
    int full = p->n_batches > 0 ? (int)(p->batch * CELLS / p->n_batches) : 0;
    bl_cli_bar_clear(cli);
    fputc('[', stderr);
    for (int i = 0; i < CELLS; i++)
        fputc(i < full ? '=' : ' ', stderr);
    fputs("] ", stderr);
    cli->bar_width = CELLS + 3 + print_figures(stderr, p);
    fflush(stderr);
}

/* At once and then ten bars a second on a terminal, a line every ten seconds elsewhere. */
static void step(bl_cli *cli, const belay_progress *p)
{
    bool is_terminal = isatty(STDERR_FILENO) == 1;
    int64_t now = bl_clock_now();
    if (cli->bar_drawn == 0)
        cli->bar_drawn = is_terminal ? now - SECOND : now;
    if (now - cli->bar_drawn < (is_terminal ? SECOND / 10 : 10 * SECOND))
        return;
    cli->bar_drawn = now;
    if (is_terminal) {
        draw_bar(cli, p);
        return;
    }
    print_figures(lines(cli), p);
    fputc('\n', lines(cli));
    fflush(lines(cli));
}

static void epoch(bl_cli *cli, const belay_progress *p)
{
    FILE *out = lines(cli);
    bl_cli_bar_clear(cli);
    fprintf(out, "epoch %lld/%lld  loss %.4f  accuracy %.4f", (long long)p->epoch + 1, (long long)p->n_epochs, p->loss,
            p->accuracy);
    if (!isnan(p->valid_loss))
        fprintf(out, "  valid loss %.4f  accuracy %.4f", p->valid_loss, p->valid_accuracy);
    fprintf(out, "  %.0f samples/s  faults %lld%s\n", p->samples_per_second, (long long)p->n_faults,
            p->is_best ? "  best" : "");
    fflush(out);
}

void bl_cli_progress(void *state, const belay_progress *progress)
{
    bl_cli *cli = state;
    if (progress->kind == BELAY_PROGRESS_STEP)
        step(cli, progress);
    else if (progress->kind == BELAY_PROGRESS_EPOCH)
        epoch(cli, progress);
}
