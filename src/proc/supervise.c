/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* wait4, epoll */
#include "proc/supervise.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "proc/parts.h"

#define SECOND      INT64_C(1000000000)
#define FROM_KERNEL 0x80 /* SI_KERNEL: the terminal sent it, to the whole group in front of it */

static const int64_t linger = SECOND, kill_again = SECOND / 20, give_up = 30 * SECOND, unended_line = SECOND;
static const int taken[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};

/* ---- begin ---------------------------------------------------------------------------------------------------------------- */

static belay_code no_memory(bl_error *error)
{
    return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to start the run");
}

static belay_code cannot(const char *what, bl_error *error)
{
    char reason[128];
    return bl_error_set(error, BELAY_MEM_EXHAUSTED, "cannot %s: %s", what, bl_error_errno(errno, reason));
}

/* What we were started to ignore, as nohup and background jobs of scripts are, stays ignored. */
static bool is_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* Signals come to a descriptor; a reader that has gone and a file that is too large are errors, not deaths. */
static belay_code open_signals(bl_supervise *s, bl_error *error)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, plain = {.sa_handler = SIG_DFL};
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < BL_COUNT(taken); i++)
        if (taken[i] == SIGCHLD || !is_ignored(taken[i]))
            sigaddset(&set, taken[i]);
    (void)sigprocmask(SIG_BLOCK, &set, &s->mask);
    (void)sigaction(SIGPIPE, &ignore, &s->pipe_action);
    (void)sigaction(SIGXFSZ, &ignore, &s->size_action);
    (void)sigaction(SIGCHLD, &plain, &s->child_action);
    s->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (s->signal_fd < 0)
        return cannot("watch signals", error);
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return s->epoll_fd >= 0 ? BELAY_OK : cannot("watch processes", error);
}

/* Two pipes, two files and a pidfd a rank; the ranks themselves keep the limit that we were given. */
static void raise_n_files(bl_supervise *s)
{
    struct rlimit wanted;
    if (getrlimit(RLIMIT_NOFILE, &s->n_files) != 0)
        return;
    wanted = s->n_files;
    rlim_t needed = 5 * (rlim_t)s->o.n_ranks + 64;
    if (wanted.rlim_cur == RLIM_INFINITY || wanted.rlim_cur >= needed)
        return;
    wanted.rlim_cur = wanted.rlim_max == RLIM_INFINITY || wanted.rlim_max > needed ? needed : wanted.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &wanted);
}

static belay_code open_kernel_log(bl_supervise *s, bl_error *error)
{
    bl_text stem = {0};
    if (s->o.no_kernel_log)
        return BELAY_OK;
    bl_text_format(&stem, "%s/%s", s->o.folder, s->o.kernel_name != NULL ? s->o.kernel_name : "kernel");
    if (!stem.failed)
        bl_kernel_log_open(&s->kernel_log, bl_text_get(&stem));
    belay_code code = stem.failed ? no_memory(error) : BELAY_OK;
    bl_text_fini(&stem);
    return code;
}

static belay_code open_view(bl_supervise *s, bl_error *error)
{
    int n = s->o.n_marked > 0 ? s->o.n_marked : s->o.n_ranks;
    TRY(bl_view_open(s->o.view_out, s->o.view_err, n, n > 1 || s->o.n_marked > 0 || s->o.marked, &s->view, error));
    if (s->o.marked)
        bl_view_mark(s->view, s->o.mark);
    if (s->o.n_marked > 0 && s->o.plain_first)
        bl_view_plain(s->view, 0);
    for (int i = 0; i < 2 && s->o.n_marked > 0; i++)
        if ((s->line[i] = bl_alloc(BL_MARKED_LINE, 1)) == NULL)
            return no_memory(error);
    return BELAY_OK;
}

static belay_code begin(bl_supervise *s, bl_error *error)
{
    int n = s->o.n_ranks;
    s->polls = bl_alloc(2 * (int64_t)n + 8, sizeof *s->polls);
    s->sources = bl_alloc(2 * (int64_t)n + 8, sizeof *s->sources);
    s->buffer = bl_alloc(BL_VIEW_READ, 1);
    if (s->polls == NULL || s->sources == NULL || s->buffer == NULL)
        return no_memory(error);
    raise_n_files(s);
    TRY(open_view(s, error));
    TRY(bl_reap_open(error));
    TRY(open_kernel_log(s, error));
    s->kills_before = bl_oom_get();
    s->facts.started = bl_clock_now();
    s->facts.started_wall = bl_clock_wall();
    s->last_output = s->facts.started;
    for (int i = 0; i < n; i++)
        TRY(bl_rank_start(s, i, error));
    return BELAY_OK;
}

/* ---- ends ------------------------------------------------------------------------------------------------------------------ */

static int rank_of(const bl_supervise *s, pid_t pid)
{
    for (int i = 0; i < s->n_started; i++)
        if (s->ranks[i].facts.pid == pid && s->ranks[i].facts.ended == 0)
            return i;
    return -1;
}

/* Ranks in the order in which they ended, which is the order of their pidfds in the epoll. */
static void reap_ranks(bl_supervise *s)
{
    struct epoll_event events[64];
    int n = epoll_wait(s->epoll_fd, events, BL_COUNT(events), 0);
    for (int i = 0; i < n; i++) {
        int rank = (int)events[i].data.u32, status;
        struct rusage usage;
        if (wait4(s->ranks[rank].facts.pid, &status, WNOHANG, &usage) > 0)
            bl_rank_note(s, rank, status, &usage);
    }
}

/* All other children: stops, orphans that became ours, helpers. */
static void reap(bl_supervise *s)
{
    struct rusage usage;
    pid_t pid;
    int status;
    reap_ranks(s);
    while ((pid = wait4(-1, &status, WNOHANG | WUNTRACED | WCONTINUED, &usage)) > 0) {
        int rank = rank_of(s, pid);
        if (rank >= 0)
            bl_rank_note(s, rank, status, &usage);
        else if (WIFEXITED(status) || WIFSIGNALED(status))
            bl_silence_note(s, pid);
    }
    s->no_children = pid < 0 && errno == ECHILD;
}

/* ---- deadlines ---------------------------------------------------------------------------------------------------------------- */

static void kill_all(bl_supervise *s)
{
    int64_t now = bl_clock_now();
    int64_t n = bl_reap_signal(SIGKILL);
    bl_rank_forward(s, SIGKILL);
    if (s->killed_since == 0) {
        s->killed_since = now;
        if (n != 0)
            bl_supervise_say(s, (bl_supervise_event){BL_EVENT_KILLING, .number = (int)bl_min_i64(n, INT32_MAX)});
    }
    if (now - s->killed_since > give_up) {
        s->given_up = true;
        s->facts.n_stuck = n;
    }
    s->next = BL_STEP_KILL;
    s->deadline = now + kill_again;
}

/* Who outlived the ranks. */
static void note_left(bl_supervise *s)
{
    bl_processes list;
    if (bl_processes_list(getpid(), &list)) {
        s->facts.n_left = list.n;
        for (int64_t i = 0; i < list.n && i < BL_SUPERVISE_LEFT; i++)
            snprintf(s->facts.left[i], sizeof s->facts.left[i], "%d %.18s", (int)list.process[i].pid,
                     list.process[i].name);
    }
    bl_processes_fini(&list);
}

static void terminate(bl_supervise *s)
{
    int64_t n = s->n_running;
    if (s->n_running == 0) {
        note_left(s);
        n = bl_reap_signal(SIGTERM);
        (void)bl_reap_signal(SIGCONT);
    }
    bl_rank_forward(s, SIGTERM);
    s->next = BL_STEP_KILL;
    s->deadline = bl_clock_now() + s->o.grace;
    bl_supervise_say(s, (bl_supervise_event){BL_EVENT_TERMINATING, .number = (int)bl_min_i64(n, INT32_MAX)});
}

static void meet_deadline(bl_supervise *s)
{
    if (s->next == BL_STEP_NONE || bl_clock_now() < s->deadline)
        return;
    if (s->next == BL_STEP_TERM)
        terminate(s);
    else
        kill_all(s);
}

/* Once all ranks have ended: what they left behind has a moment to end too. */
static void after_ranks(bl_supervise *s)
{
    if (s->n_running > 0 && !s->given_up)
        return;
    if (!s->no_children) /* the last rank's end may have come by the epoll, before the signal that tells it */
        reap(s);
    if (s->no_children || s->given_up) {
        s->draining = true;
        s->next = BL_STEP_NONE;
    } else if (s->facts.ended == 0 && s->killed_since == 0) {
        s->next = BL_STEP_TERM;
        s->deadline = bl_clock_now() + bl_min_i64(s->o.linger > 0 ? s->o.linger : linger, s->o.grace);
    }
    if (s->facts.ended == 0)
        s->facts.ended = bl_clock_now();
}

/* ---- signals ------------------------------------------------------------------------------------------------------------------- */

static void stop(bl_supervise *s, int number)
{
    int64_t now = bl_clock_now();
    if (s->facts.stop_signal != 0) { /* asked again; what comes at once is the same signal by two ways */
        if (now - s->stopped_at > SECOND / 4)
            kill_all(s);
        return;
    }
    s->stopped_at = now;
    s->facts.stop_signal = number;
    s->next = BL_STEP_KILL;
    s->deadline = now + s->o.grace;
    if (s->o.watch.stop != NULL && s->o.watch.stop(s->o.watch.state, s, number))
        return;
    bl_rank_forward(s, number);
    if (s->n_running == 0)
        (void)bl_reap_signal(number);
}

void bl_supervise_stop(bl_supervise *s, int number) { stop(s, number); }

void bl_supervise_kill(bl_supervise *s) { kill_all(s); }

void bl_supervise_end(bl_supervise *s, int64_t grace)
{
    terminate(s);
    s->deadline = bl_clock_now() + grace;
}

/* The terminal has told the program itself.  Programs such as a debugger live on after that; two in a row are meant. */
static void interrupt_shared(bl_supervise *s)
{
    int64_t now = bl_clock_now();
    bool again = s->last_interrupt != 0 && now - s->last_interrupt < 2 * SECOND;
    s->last_interrupt = now;
    if (again)
        stop(s, SIGTERM);
}

/* All stop together; time that stood still does not count. */
static void pause_all(bl_supervise *s, bool is_shared)
{
    if (!is_shared)
        bl_rank_forward(s, SIGTSTP);
    int64_t before = bl_clock_now();
    (void)kill(getpid(), SIGSTOP);
    int64_t stood = bl_clock_now() - before;
    s->deadline += stood;
    s->last_output += stood;
}

static void take_signal(bl_supervise *s, const struct signalfd_siginfo *info)
{
    int number = (int)info->ssi_signo;
    bool is_shared = s->o.shares_terminal && info->ssi_code == FROM_KERNEL;
    if (number == SIGCHLD)
        reap(s);
    else if (number == SIGTSTP)
        pause_all(s, is_shared);
    else if (number == SIGINT && is_shared)
        interrupt_shared(s);
    else if (number == SIGINT || number == SIGTERM || (number == SIGHUP && s->o.watch.stop != NULL))
        stop(s, number); /* an owner with ranks elsewhere ends them in order when its terminal goes */
    else if (!is_shared)
        bl_rank_forward(s, number);
}

static void take_signals(bl_supervise *s)
{
    struct signalfd_siginfo info;
    while (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        take_signal(s, &info);
}

/* ---- the loop -------------------------------------------------------------------------------------------------------------------- */

enum { AT_SIGNALS, AT_ENDS, AT_KERNEL, AT_VIEW };

/* What to wait for; pipes only as long as the view has room for what they hold. */
static int fill_polls(bl_supervise *s, int *first_pipe)
{
    s->polls[AT_SIGNALS] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
    s->polls[AT_ENDS] = (struct pollfd){.fd = s->epoll_fd, .events = POLLIN};
    s->polls[AT_KERNEL] = (struct pollfd){.fd = s->kernel_log.fd, .events = POLLIN};
    int n = AT_VIEW + bl_view_poll(s->view, s->polls + AT_VIEW);
    *first_pipe = n;
    for (int i = 0; i < 2 * s->n_started; i++) {
        int fd = s->ranks[i / 2].pipe[i % 2];
        if (fd < 0 || !bl_view_has_room(s->view, i % 2))
            continue;
        s->sources[n - *first_pipe] = i;
        s->polls[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    return n;
}

static void earlier(int64_t *first, int64_t moment)
{
    if (moment != 0 && (*first == 0 || moment < *first))
        *first = moment;
}

/* Milliseconds to the next moment at which something is due; -1: none is. */
static int time_left(bl_supervise *s)
{
    int64_t first = s->next != BL_STEP_NONE ? s->deadline : 0;
    int64_t line = bl_view_oldest(s->view);
    earlier(&first, line != 0 ? line + unended_line : 0);
    earlier(&first, bl_silence_step(s));
    if (s->o.watch.look != NULL && !s->draining)
        earlier(&first, s->looked + s->o.watch.look_every);
    if (first == 0)
        return -1;
    int64_t left = (first - bl_clock_now() + 999999) / 1000000;
    return (int)bl_max_i64(0, bl_min_i64(left, 3600 * 1000));
}

static void look(bl_supervise *s)
{
    const bl_supervise_watch *watch = &s->o.watch;
    int64_t now = bl_clock_now();
    if (watch->look == NULL || s->draining || now - s->looked < watch->look_every)
        return;
    s->looked = now;
    watch->look(watch->state, s);
}

static void turn(bl_supervise *s)
{
    int first_pipe, n = fill_polls(s, &first_pipe), wait = time_left(s);
    if (s->draining && n > first_pipe)
        wait = 0;
    if (poll(s->polls, (nfds_t)n, wait) < 0)
        return;
    /* Ends first: a signal can tell of several, their order only the epoll does. */
    if (s->polls[AT_ENDS].revents != 0)
        reap_ranks(s);
    if (s->polls[AT_SIGNALS].revents != 0)
        take_signals(s);
    if (s->polls[AT_KERNEL].revents != 0)
        bl_kernel_log_read(&s->kernel_log);
    bl_view_flush(s->view);
    for (int i = first_pipe; i < n; i++) {
        int source = s->sources[i - first_pipe];
        if ((s->polls[i].revents != 0 || s->draining) && bl_view_has_room(s->view, source % 2))
            bl_rank_read(s, source / 2, source % 2, s->draining);
    }
    bl_view_end_lines(s->view, unended_line);
    look(s);
    meet_deadline(s);
    after_ranks(s);
}

static bool is_over(const bl_supervise *s)
{
    struct pollfd unused[2];
    if (!s->draining || (bl_view_poll(s->view, unused) > 0 && s->facts.stop_signal == 0))
        return false;
    for (int i = 0; i < 2 * s->n_started; i++)
        if (s->ranks[i / 2].pipe[i % 2] >= 0)
            return false;
    return true;
}

/* ---- end --------------------------------------------------------------------------------------------------------------------------- */

static void end_signals(bl_supervise *s)
{
    struct signalfd_siginfo info;
    while (s->signal_fd >= 0 && read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        if ((info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM) && s->facts.stop_signal == 0)
            s->facts.stop_signal = (int)info.ssi_signo;
    if (s->signal_fd >= 0)
        close(s->signal_fd);
    if (s->epoll_fd >= 0)
        close(s->epoll_fd);
    (void)sigaction(SIGPIPE, &s->pipe_action, NULL);
    (void)sigaction(SIGXFSZ, &s->size_action, NULL);
    (void)sigaction(SIGCHLD, &s->child_action, NULL);
    (void)sigprocmask(SIG_SETMASK, &s->mask, NULL);
    if (s->n_files.rlim_cur > 0)
        (void)setrlimit(RLIMIT_NOFILE, &s->n_files);
}

/* After a start that failed half way. */
static void abandon(bl_supervise *s)
{
    bl_rank_forward(s, SIGKILL);
    (void)bl_reap_signal(SIGKILL);
    for (int i = 0; i < s->n_started; i++)
        while (waitpid(s->ranks[i].facts.pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    while (bl_reap_signal(SIGKILL) > 0)
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
}

static void conclude(bl_supervise *s)
{
    bl_kernel_log_close(&s->kernel_log);
    s->facts.kills = bl_oom_since(&s->kills_before);
    for (int i = 0; i < s->n_started; i++) {
        bl_rank_facts *f = &s->ranks[i].facts;
        for (int k = 0; k < 2; k++) {
            f->stream[k] = bl_capture_facts_get(s->ranks[i].capture[k]);
            s->facts.n_unkept += f->stream[k].failure != 0;
        }
        for (int k = 0; k < s->kernel_log.n_killed; k++)
            f->out_of_memory = f->out_of_memory || s->kernel_log.killed[k] == f->pid;
    }
}

static belay_code run(bl_supervise *s, bl_error *error)
{
    TRY(open_signals(s, error));
    belay_code code = begin(s, error);
    if (code != BELAY_OK) {
        abandon(s);
        return code;
    }
    while (!is_over(s))
        turn(s);
    conclude(s);
    return BELAY_OK;
}

belay_code bl_supervise_run(const bl_supervise_options *options, bl_supervise **out, bl_error *error)
{
    *out = NULL;
    bl_supervise *s = bl_alloc(1, sizeof *s);
    bl_rank *ranks = bl_alloc(options->n_ranks, sizeof *ranks);
    if (s == NULL || ranks == NULL) {
        bl_free(s);
        bl_free(ranks);
        return no_memory(error);
    }
    s->o = *options;
    s->ranks = ranks;
    s->signal_fd = s->epoll_fd = s->kernel_log.fd = s->silence.fd = -1;
    s->facts.first_failed = -1;
    s->facts.kernel_log = &s->kernel_log;
    for (int i = 0; i < options->n_ranks; i++)
        ranks[i] = (bl_rank){.pipe = {-1, -1}, .pidfd = -1, .facts = {.status = -1, .cores = -1}};
    belay_code code = run(s, error);
    bl_silence_close(s);
    end_signals(s);
    if (code != BELAY_OK)
        bl_supervise_close(s);
    else
        *out = s;
    return code;
}

void bl_supervise_close(bl_supervise *s)
{
    if (s == NULL)
        return;
    for (int i = 0; i < s->o.n_ranks; i++)
        bl_rank_close(&s->ranks[i]);
    bl_kernel_log_close(&s->kernel_log);
    bl_view_close(s->view);
    bl_free(s->polls);
    bl_free(s->sources);
    bl_free(s->buffer);
    bl_free(s->line[0]);
    bl_free(s->line[1]);
    bl_free(s->ranks);
    bl_free(s);
}

/* ---- questions ---------------------------------------------------------------------------------------------------------------------- */

const bl_supervise_facts *bl_supervise_facts_get(const bl_supervise *s) { return &s->facts; }
int bl_supervise_n_ranks(const bl_supervise *s) { return s->o.n_ranks; }
const bl_rank_facts *bl_supervise_rank(const bl_supervise *s, int rank) { return &s->ranks[rank].facts; }

const char *bl_supervise_tail(const bl_supervise *s, int rank, int stream, int64_t *n_bytes)
{
    return bl_capture_tail(s->ranks[rank].capture[stream], n_bytes);
}

int bl_supervise_status(const bl_supervise *s)
{
    int first = s->facts.first_failed;
    return first < 0 ? 0 : bl_rank_status(&s->ranks[first].facts);
}

static int try_port(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof address;
    int given = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &n) == 0)
        given = ntohs(address.sin_port);
    if (fd >= 0)
        close(fd);
    return given;
}

int bl_supervise_port(void)
{
    int port = try_port(29500);
    return port != 0 ? port : try_port(0);
}
