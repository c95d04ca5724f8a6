/* SPDX-License-Identifier: Apache-2.0 */
/* One line of a log taken apart: what the tools around a program put in front of its text (rank labels, time stamps,
 * host names, colours), and the text itself, which is the same however the line was decorated.  Nothing here allocates,
 * fails or reads past the line; bytes that are no text (NUL, broken UTF-8) stay as they are and are escaped by who
 * prints them.
 *
 * In front of a text there may stand, in any order and each at most a few times:
 *
 *   ranks    [rank3]:  [default3]:  [trainer3]:  [1,3]<stdout>:  [3]<stderr>:  (RayTrainWorker pid=.., ip=..)
 *            [gpu07:mpi_rank_3] of MVAPICH;  Rank 3 [Tue Mar  3 ..] of Cray's MPI
 *            "3: " and "[3] " only where the file shows that style throughout (bl_line_style)
 *   times    ISO 8601 and its relatives, with T or blank, comma or dot fractions, Z or an offset, in brackets or not;
 *            2026/04/08 10:15:20;  Sun Jun  9 11:20:41 2024;  Jun  9 11:20:41;  [ 8123.400112];
 *            6,1234,12345678901,-;  [23:13:57.246693];  E0714 09:32:03.102331 1234;  [E714 09:32:03.102331946 ...];
 *            E0000 00:00:1720949523.102331 1234
 *   others   host kernel:  host program[pid]:  kern  :info  :  <6>  host:pid:tid [device] (of NCCL)
 *            [pod/name/container]  stdout F (of Kubernetes)
 *
 * A line may be a record that holds the text: JSON of the journal, of containers and of structured loggers, with the
 * text in its MESSAGE, log, message or msg, and its time, rank and process beside it.
 *
 * Ranks that stand inside of a text, "[Rank 3]" of ProcessGroupNCCL, "[grank=3]" or "rank: 3, " at its beginning, stay there and are told apart from the label. */
#ifndef BL_TRIAGE_LINE_H
#define BL_TRIAGE_LINE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum bl_time_kind {
    BL_TIME_NONE,
    BL_TIME_WALL,  /* since 1970; UTC where the stamp has a zone, else the clock of whoever wrote it */
    BL_TIME_BOOT,  /* since that machine started */
    BL_TIME_OF_DAY /* since midnight, of an unknown day */
} bl_time_kind;

typedef struct bl_line {
    int file;       /* these two are the caller's; bl_line_parse leaves them alone */
    int64_t number; /* from 1 */
    const char *raw;
    int64_t n_raw; /* without the line's end */

    /* Cleaned, without labels and stamps.  Carriage returns cut a line into segments (the states of a progress bar);
     * each is cleaned by itself, and they stand here in order with '\n' between.  Empty segments are left out. */
    const char *text;
    int64_t n_text;
    int n_segments; /* at least 1 */

    int rank;           /* by the label, else by the file's name; -1 where neither tells */
    bool is_labeled;    /* the rank comes from a label in front of this line */
    bool is_local_rank; /* the label counts the ranks of one host ([default3]:) and there is nothing better */
    int said_rank;      /* "[Rank 3]", "[PG ID 0 .. Rank 3]", "[rank: 3]" in front of the text proper; -1 */
    int device;         /* of NCCL's "host:pid:tid [3]", a CUDA ordinal and not a rank; -1 */
    int64_t pid;        /* of NCCL, Ray and syslog lines; -1 */
    const char *host;   /* of a record's field, within raw; NULL */
    int64_t n_host;
    char level; /* 'I', 'W', 'E', 'F' of glog, 'D' besides; 0 where the stamp tells none */

    /* The stamp; of a line with several segments the last one that has any. */
    int64_t time; /* microseconds */
    bl_time_kind time_kind;
    bool time_has_zone;
    bool time_has_year; /* false: the year comes from bl_line_style.around, else .latest, else is 1972 */
} bl_line;

/* What must be known of a file before its lines can be read.  Begin with bl_line_style_init, show it lines (those of
 * the first block, in order), then settle. */
typedef struct bl_line_style {
    int rank;       /* by the file's name; -1.  Settling drops it when labels of other ranks stand in the file */
    int64_t latest; /* wall time, microseconds: no stamp of the file is later than a day after it; 0: unknown */
    int64_t around; /* some dated stamp of the file: one without a year is of the year nearest to it; 0: unknown */
    bool is_numbered_colon;   /* lines begin with "3: " (srun --label) */
    bool is_numbered_bracket; /* lines begin with "[3] " (mpiexec -prepend-rank, -l) */

    /* How settling comes to that. */
    struct bl_line_count {
        int64_t n_lines, n_rising, n_falling, n_same;
        int64_t first, last;
    } colon, bracket;
    int64_t n_seen;
    int label_seen; /* the first rank that a label named; -1 */
    bool has_other_labels;
    int told_rank; /* the first rank that a line said of itself, -1; how many did, and whether another one was said */
    int64_t n_told;
    bool tells_several, has_variable; /* RANK=3 of the environment stands there */
} bl_line_style;

void bl_line_style_init(bl_line_style *style, const char *path);
void bl_line_style_learn(bl_line_style *style, const char *raw, int64_t n_raw);
void bl_line_style_settle(bl_line_style *style);

/* The one rank that most lines, or its environment, said while the style was learnt; -1. */
int bl_line_style_told(const bl_line_style *style);

/* The rank that a file's name tells, else -1: rank3.log, rank_3.txt, rank-3/log.txt, worker-3.log, 3.err, stdout.3,
 * log.1.3, and torchrun's folders attempt_0/3/stderr.log.  A job's number with a task (job-12_3.out) is not sure. */
int bl_line_rank_of_path(const char *path);

/* Takes `raw` apart (with or without its line end).  `scratch` has room for n_raw bytes; the text lies there or in raw,
 * so both must outlive it.  NULL for style: no style was seen. */
void bl_line_parse(const bl_line_style *style, const char *raw, int64_t n_raw, char *scratch, bl_line *line);

/* The same day and hour of the year nearest to `around`: for stamps without a year, when other files tell it. */
int64_t bl_line_time_near(int64_t time, int64_t around);

/* The next segment of the text; *at begins with 0 and is moved on.  False behind the last. */
bool bl_line_segment(const bl_line *line, int64_t *at, const char **bytes, int64_t *n_bytes);

#endif
