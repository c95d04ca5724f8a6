/* SPDX-License-Identifier: Apache-2.0 */
#include "file/failpoint.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/path.h"

static _Atomic int64_t fail_at = -1;
static _Atomic int fail_mode;
static _Atomic int64_t asked;
static _Atomic bool reached;

void bl_file_fail_at(int64_t n, bl_file_fail_mode mode)
{
    atomic_store(&fail_at, -1);
    if (n < 0)
        return;
    atomic_store(&asked, 0);
    atomic_store(&reached, false);
    atomic_store(&fail_mode, (int)mode);
    atomic_store(&fail_at, n);
}

int64_t bl_file_fail_asked(void) { return atomic_load(&asked); }
bool bl_file_fail_reached(void) { return atomic_load(&reached); }

static int fail_now(void)
{
    atomic_store(&reached, true);
    switch ((bl_file_fail_mode)atomic_load(&fail_mode)) {
    case BL_FILE_FAIL_EIO:
        return EIO;
    case BL_FILE_FAIL_ENOSPC:
        return ENOSPC;
    case BL_FILE_FAIL_KILL:
        raise(SIGKILL);
        _exit(137); /* not reached: SIGKILL cannot be held */
    }
    return EIO;
}

int bl_file_fail_point(void)
{
    int64_t n = atomic_load_explicit(&fail_at, memory_order_relaxed);
    if (BL_LIKELY(n < 0))
        return 0;
    return atomic_fetch_add(&asked, 1) == n ? fail_now() : 0;
}

typedef struct mode_row {
    const char *name;
    bl_file_fail_mode mode;
} mode_row;

static const mode_row mode_rows[] = {
    {":error", BL_FILE_FAIL_EIO}, {":nospace", BL_FILE_FAIL_ENOSPC}, {":kill", BL_FILE_FAIL_KILL}};

belay_code bl_file_fail_init(bl_error *error)
{
    const char *text = getenv("BELAY_FAIL_POINT");
    if (text == NULL)
        return BELAY_OK;
    char *end = NULL;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (end != text && errno == 0 && n >= 0)
        for (int i = 0; i < BL_COUNT(mode_rows); i++)
            if (strcmp(end, mode_rows[i].name) == 0) {
                bl_file_fail_at(n, mode_rows[i].mode);
                return BELAY_OK;
            }
    char quoted[BL_FILE_QUOTE];
    return bl_error_set(error, BELAY_CONF_VALUE,
                        "BELAY_FAIL_POINT is '%s', but must be a number from 0 and :error, :nospace or :kill",
                        bl_file_quote(text, (int64_t)strlen(text), quoted));
}
