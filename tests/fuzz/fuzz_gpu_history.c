/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the file of a GPU's history holds: it opens, its events are in order and in range, and what is saved over it
 * can be read without loss. */
#include "fuzz_support.h"

#include "triage/history.h"

static char folder[64], path[96];

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

/* Made once; removed when the process ends as it should. */
static void make_folder(void)
{
    if (folder[0] != '\0')
        return;
    strcpy(folder, "/tmp/belay-fuzz-history-XXXXXX");
    fuzz_require(mkdtemp(folder) != NULL, "a folder can be made");
    snprintf(path, sizeof path, "%s/GPU.tsv", folder);
    atexit(remove_folder);
}

static void put_file(const uint8_t *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    fuzz_require(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0, "the input can be written");
}

static bl_history *open_history(void)
{
    bl_history *history;
    fuzz_require(bl_history_open(&(bl_history_options){.folder = folder}, &history, NULL) == BELAY_OK, "it opens");
    return history;
}

static int check_events(bl_history *history)
{
    int n;
    const bl_history_event *events = bl_history_get(history, "GPU", &n);
    fuzz_require((events == NULL) == (n == 0) && n <= BL_HISTORY_MOST, "events are counted");
    for (int i = 0; i < n; i++) {
        fuzz_require(i == 0 || events[i].time >= events[i - 1].time, "events are in order");
        fuzz_require(events[i].code >= 0 && events[i].code <= 99999 && events[i].pid >= -1, "numbers are in range");
        fuzz_require(events[i].gpc >= -1 && events[i].tpc >= -1, "a part is in range");
        fuzz_require(memchr(events[i].program, '\0', sizeof events[i].program) != NULL, "a name ends");
    }
    bl_history_count count = bl_history_count_get(history, "GPU", 0, 0);
    fuzz_require(count.n_events <= n && count.n_pids <= count.n_events, "no more is counted than there is");
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bl_history_event event = {.time = INT64_MAX / 2, .code = 31, .pid = 1, .gpc = -1, .tpc = -1, .mark = 7};
    make_folder();
    put_file(data, size);
    bl_history *history = open_history();
    check_events(history);
    fuzz_require(bl_history_add(history, "GPU", &event, NULL) == BELAY_OK, "an event can be added");
    int n = check_events(history);
    fuzz_require(n > 0 && bl_history_save(history, NULL) == BELAY_OK, "it can be saved");
    bl_history_close(history);
    history = open_history();
    int again = check_events(history);
    fuzz_require(again == n, "what was saved is there");
    fuzz_require(bl_history_note(history)[0] == '\0', "what was saved is whole");
    bl_history_close(history);
    return 0;
}
