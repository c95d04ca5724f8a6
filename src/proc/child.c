/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* pipe2 */
#include "proc/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"

/* ---- which file ------------------------------------------------------------------------------------------------------ */

static belay_code refuse(const char *name, int number, bl_error *error)
{
    char reason[128];
    bl_text shown = {0};
    bl_text_add_escaped(&shown, name, (int64_t)strlen(name), 200);
    belay_code code = bl_error_set(error, BELAY_FILE_OPEN, "cannot start '%s': %s", bl_text_get(&shown),
                                   bl_error_errno(number, reason));
    if (number == ENOEXEC)
        bl_error_advise(error, "A script needs a first line such as #!/bin/sh; a binary must be for this processor.");
    else if (number == ENOENT)
        bl_error_advise(error, "Check the spelling and PATH; arguments are separate words, not one quoted text.");
    else
        bl_error_advise(error, "Check that the file is a program that you may execute.");
    bl_text_fini(&shown);
    return code;
}

static belay_code no_memory(const char *name, bl_error *error)
{
    return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to start '%.100s'", name);
}

/* 0, or why the file cannot be executed. */
static int check_file(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return errno;
    if (S_ISDIR(status.st_mode))
        return EISDIR;
    return S_ISREG(status.st_mode) && access(path, X_OK) == 0 ? 0 : EACCES;
}

/* The first file on PATH that can be executed; the reason told is that of a file that is there, if any is. */
static int search(const char *name, bl_text *path)
{
    const char *folders = getenv("PATH");
    int reason = ENOENT;
    for (const char *at = folders != NULL ? folders : "/usr/local/bin:/usr/bin:/bin"; at != NULL;) {
        size_t length = strcspn(at, ":");
        bl_text_clear(path);
        bl_text_add_bytes(path, at, (int64_t)length);
        bl_text_add(path, length > 0 ? "/" : "./");
        bl_text_add(path, name);
        int failure = path->failed ? ENOMEM : check_file(bl_text_get(path));
        if (failure == 0 || failure == ENOMEM)
            return failure;
        if (failure == EACCES)
            reason = EACCES;
        at = at[length] == ':' ? at + length + 1 : NULL;
    }
    return reason;
}

belay_code bl_child_find(const char *name, char **path, bl_error *error)
{
    bl_text found = {0};
    int failure = ENOENT;
    if (strchr(name, '/') != NULL) {
        bl_text_add(&found, name);
        failure = check_file(name);
    } else if (name[0] != '\0') {
        failure = search(name, &found);
    }
    *path = failure == 0 && !found.failed ? bl_strdup(bl_text_get(&found)) : NULL;
    bl_text_fini(&found);
    if (*path != NULL)
        return BELAY_OK;
    return failure == 0 || failure == ENOMEM ? no_memory(name, error) : refuse(name, failure, error);
}

/* ---- what it is given ------------------------------------------------------------------------------------------------ */

static bool same_name(const char *a, const char *b)
{
    size_t length = strcspn(a, "=");
    return strncmp(a, b, length) == 0 && b[length] == '=';
}

static bool is_replaced(const bl_child_spec *spec, const char *entry)
{
    for (int i = 0; i < spec->n_set; i++)
        if (same_name(spec->set[i], entry))
            return true;
    return false;
}

/* Our environment without what is set anew, then that; of two settings of a name the later one. */
static char **environment(const bl_child_spec *spec)
{
    int64_t n = 0, count = 0;
    while (environ != NULL && environ[count] != NULL)
        count++;
    char **made = bl_alloc(count + spec->n_set + 1, sizeof *made);
    if (made == NULL)
        return NULL;
    for (int64_t i = 0; i < count; i++)
        if (!is_replaced(spec, environ[i]))
            made[n++] = environ[i];
    for (int i = 0; i < spec->n_set; i++) {
        bool later = false;
        for (int k = i + 1; k < spec->n_set; k++)
            later = later || same_name(spec->set[i], spec->set[k]);
        if (!later)
            made[n++] = (char *)(uintptr_t)spec->set[i];
    }
    return made;
}

belay_code bl_child_pipe(int ends[2], bl_error *error)
{
    char reason[128];
    int raw[2];
    if (pipe2(raw, O_CLOEXEC) != 0)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "cannot make a pipe: %s", bl_error_errno(errno, reason));
    for (int i = 0; i < 2; i++) {
        ends[i] = raw[i] > 2 ? raw[i] : fcntl(raw[i], F_DUPFD_CLOEXEC, 3);
        if (ends[i] != raw[i])
            close(raw[i]);
    }
    if (ends[0] >= 0 && ends[1] >= 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0)
        return BELAY_OK;
    int number = errno;
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    return bl_error_set(error, BELAY_MEM_EXHAUSTED, "cannot make a pipe: %s", bl_error_errno(number, reason));
}

/* ---- between fork and exec: only calls that are safe there ------------------------------------------------------------- */

static bool place(int fd, int number, int flags)
{
    if (fd < 0)
        fd = open("/dev/null", flags | O_CLOEXEC);
    if (fd == number) /* dup2 onto itself would leave it closed on exec */
        return fcntl(fd, F_SETFD, 0) == 0;
    return dup2(fd, number) == number;
}

static void set_signals(void)
{
    static const int plain[] = {SIGPIPE, SIGXFSZ, SIGCHLD};
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        (void)sigaction(plain[i], &action, NULL);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static void set_limits(const bl_child_spec *spec)
{
    struct rlimit core;
    if (spec->n_files != NULL)
        (void)setrlimit(RLIMIT_NOFILE, spec->n_files);
    if (spec->core && getrlimit(RLIMIT_CORE, &core) == 0) {
        core.rlim_cur = core.rlim_max;
        (void)setrlimit(RLIMIT_CORE, &core);
    }
}

static _Noreturn void become(const bl_child_spec *spec, const char *path, char *const *env, pid_t parent, int report)
{
    int number = 0;
    if (spec->own_group)
        (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (spec->traceable)
        (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    if (getppid() != parent)
        _exit(127);
    if (!place(spec->in, 0, O_RDONLY) || !place(spec->out, 1, O_WRONLY) || !place(spec->err, 2, O_WRONLY))
        number = errno;
    if (number == 0) {
        set_limits(spec);
        set_signals();
        execve(path, spec->argv, env);
        number = errno;
    }
    (void)!write(report, &number, sizeof number);
    _exit(127);
}

/* ---- the start ------------------------------------------------------------------------------------------------------- */

/* 0 once the program runs, else the reason why it does not; then the child is gone. */
static int wait_for_exec(pid_t pid, int report)
{
    int number = 0;
    ssize_t n;
    do
        n = read(report, &number, sizeof number);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof number)
        return 0;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return number != 0 ? number : EIO;
}

static belay_code start(const bl_child_spec *spec, const char *path, char *const *env, pid_t *pid, bl_error *error)
{
    char reason[128];
    int report[2];
    TRY(bl_child_pipe(report, error));
    (void)fcntl(report[0], F_SETFL, 0);
    pid_t parent = getpid(), child = fork();
    if (child == 0)
        become(spec, path, env, parent, report[1]);
    int number = errno;
    close(report[1]);
    if (child < 0) {
        close(report[0]);
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "cannot start another process: %s",
                            bl_error_errno(number, reason));
    }
    if (spec->own_group)
        (void)setpgid(child, child); /* on both sides, so that neither can be too early */
    number = wait_for_exec(child, report[0]);
    close(report[0]);
    if (number != 0)
        return refuse(spec->argv[0], number, error);
    *pid = child;
    return BELAY_OK;
}

belay_code bl_child_start(const bl_child_spec *spec, pid_t *pid, bl_error *error)
{
    char *path = NULL;
    *pid = -1;
    TRY(bl_child_find(spec->argv[0], &path, error));
    char **env = environment(spec);
    belay_code code = env != NULL ? start(spec, path, env, pid, error) : no_memory(spec->argv[0], error);
    bl_free(env);
    bl_free(path);
    return code;
}

/* ---- names ----------------------------------------------------------------------------------------------------------- */

const char *bl_signal_name(int number, char buffer[24])
{
    static const struct {
        int number;
        const char *name;
    } names[] = {
        {SIGHUP, "SIGHUP"},       {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},   {SIGILL, "SIGILL"},
        {SIGTRAP, "SIGTRAP"},     {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},     {SIGFPE, "SIGFPE"},
        {SIGKILL, "SIGKILL"},     {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"},   {SIGUSR2, "SIGUSR2"},
        {SIGPIPE, "SIGPIPE"},     {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},   {SIGCHLD, "SIGCHLD"},
        {SIGCONT, "SIGCONT"},     {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"},   {SIGTTIN, "SIGTTIN"},
        {SIGTTOU, "SIGTTOU"},     {SIGURG, "SIGURG"},   {SIGXCPU, "SIGXCPU"},   {SIGXFSZ, "SIGXFSZ"},
        {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGWINCH, "SIGWINCH"}, {SIGSYS, "SIGSYS"},
    };
    for (int i = 0; i < BL_COUNT(names); i++)
        if (names[i].number == number)
            return names[i].name;
    if (number >= SIGRTMIN && number <= SIGRTMAX)
        snprintf(buffer, 24, "SIGRTMIN+%d", number - SIGRTMIN);
    else
        snprintf(buffer, 24, "signal %d", number);
    return buffer;
}
