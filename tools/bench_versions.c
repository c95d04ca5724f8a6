/* SPDX-License-Identifier: Apache-2.0 */
/* Two builds of the library beside each other in one process: what one call of add costs, recorded and not, in pairs of
 * 1,000 calls whose order alternates.  Prints the medians and the median quotient, second / first.
 *
 *     cc -O2 -Iinclude tools/bench_versions.c -ldl -o bench_versions
 *     bench_versions OLD/libbelay.so NEW/libbelay.so [PAIRS] */
#define _GNU_SOURCE
#include <belay/grad.h>
#include <belay/op.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CALLS = 1000, MOST_PAIRS = 10000 };

#define FUNCTIONS(X)                                                                                                   \
    X(open) X(close) X(ones) X(add) X(scope_open) X(scope_close) X(recording_set) X(tensor_requires_grad_set)

typedef struct version {
#define X(name) __typeof__(&belay_##name) name;
    FUNCTIONS(X)
#undef X
    belay_context *context;
    belay_tensor x;
} version;

static version load(const char *path)
{
    version v = {0};
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
#define X(name)                                                                                                        \
    v.name = library != NULL ? (__typeof__(&belay_##name))dlsym(library, "belay_" #name) : NULL;                       \
    if (v.name == NULL) {                                                                                              \
        fprintf(stderr, "bench_versions: %s\n", dlerror());                                                            \
        exit(2);                                                                                                       \
    }
    FUNCTIONS(X)
#undef X
    v.context = v.open(NULL); /* options may differ between the two */
    v.x = v.tensor_requires_grad_set(v.ones(v.context, BELAY_F32, belay_shape1(1)), true);
    return v;
}

static double nanoseconds(const version *v)
{
    struct timespec begin, end;
    belay_scope scope = v->scope_open(v->context);
    belay_tensor y = v->x;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < CALLS; i++)
        y = v->add(y, v->x);
    clock_gettime(CLOCK_MONOTONIC, &end);
    v->scope_close(scope);
    return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / CALLS;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_size);
    return values[n / 2];
}

static void compare(const version *v, bool recording, int pairs)
{
    static double side[2][MOST_PAIRS], quotient[MOST_PAIRS];
    v[0].recording_set(v[0].context, recording);
    v[1].recording_set(v[1].context, recording);
    for (int i = -10; i < pairs; i++) {
        int first = i & 1, at = i < 0 ? 0 : i;
        side[first][at] = nanoseconds(&v[first]);
        side[!first][at] = nanoseconds(&v[!first]);
        quotient[at] = side[1][at] / side[0][at];
    }
    double old = median(side[0], pairs), new = median(side[1], pairs);
    printf("%-12s %7.1f ns  %7.1f ns  quotient %.3f\n", recording ? "recorded" : "not recorded", old, new,
           median(quotient, pairs));
}

int main(int argc, char **argv)
{
    int pairs = argc > 3 ? atoi(argv[3]) : 301;
    if (argc < 3 || pairs < 1 || pairs > MOST_PAIRS) {
        fprintf(stderr, "usage: bench_versions OLD.so NEW.so [PAIRS]\n");
        return 2;
    }
    const version v[2] = {load(argv[1]), load(argv[2])};
    compare(v, true, pairs);
    compare(v, false, pairs);
    return v[0].close(v[0].context) != 0 || v[1].close(v[1].context) != 0;
}
