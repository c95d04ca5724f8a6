/* SPDX-License-Identifier: Apache-2.0 */
#include "triage/journal_launch.h"

#include <inttypes.h>
#include <string.h>

enum { NAME_SHOWN = 64, SITE_BYTES = 160 };

static void add_escaped(bl_text *out, const char *text)
{
    bl_text_add_escaped(out, text, (int64_t)strlen(text), NAME_SHOWN);
}

void bl_journal_launch_words(const bl_journal_reader *reader, const bl_launch_record *launch, bl_text *out)
{
    char site[SITE_BYTES];
    const char *layer = bl_journal_reader_text(reader, launch->layer);
    bl_journal_reader_describe_site(reader, launch->site, site, sizeof site);
    bl_text_format(out, "#%" PRIu64 " ", launch->serial);
    add_escaped(out, bl_journal_reader_op(reader, launch->op));
    bl_text_add(out, launch->is_backward != 0 ? " (backward)" : "");
    if (layer[0] != '\0') {
        bl_text_add(out, " in ");
        add_escaped(out, layer);
    }
    if (site[0] != '\0') { /* belay's own trainer has none to tell */
        bl_text_add(out, " at ");
        add_escaped(out, site);
    }
    bl_text_format(out, ", epoch %u, batch %u, step %" PRIu64, launch->epoch, launch->position, launch->step);
}

/* ---- streams --------------------------------------------------------------------------------------------------------- */

static bool is_flying(const bl_stream_record *row, const bl_launch_record *launch)
{
    return launch->number > row->passed;
}

static void take(bl_journal_stream *stream, const bl_launch_record *launch)
{
    if (stream->n_last < BL_JOURNAL_LAST)
        stream->last[stream->n_last++] = *launch;
    if (is_flying(&stream->row, launch)) {
        stream->first = *launch;
        stream->n_launches++;
    }
}

/* Commands between launches are known by their numbers alone; a synchronous device counts by the launches of all. */
static uint64_t count_others(const bl_journal_stream *stream)
{
    const bl_stream_record *row = &stream->row;
    uint64_t put = row->put;
    if (stream->n_last > 0 && stream->last[0].number > put)
        put = stream->last[0].number;
    uint64_t flying = put > row->passed ? put - row->passed : 0;
    return row->is_synchronous == 0 && flying > stream->n_launches ? flying - stream->n_launches : 0;
}

bool bl_journal_stream_read(const bl_journal_reader *reader, int row, bl_journal_stream *out)
{
    const bl_journal_head *head = bl_journal_reader_head(reader);
    uint64_t capacity = head->launches.n_bytes / sizeof(bl_launch_record);
    bl_launch_record launch;
    memset(out, 0, sizeof *out);
    if (!bl_journal_reader_stream(reader, row, &out->row))
        return false;
    for (uint64_t back = 0; back < capacity && back < head->n_launches; back++) {
        uint64_t serial = head->n_launches - back;
        if (serial <= out->row.opened_after)
            break;
        if (bl_journal_reader_launch(reader, serial, &launch) && launch.stream == (uint32_t)row)
            take(out, &launch);
    }
    out->n_others = count_others(out);
    return out->n_last > 0 || out->n_others > 0;
}

void bl_journal_stream_words(const bl_journal_reader *reader, const bl_journal_stream *stream, bl_text *out)
{
    const char *name = bl_journal_reader_text(reader, stream->row.name);
    add_escaped(out, stream->row.device);
    if (stream->row.is_synchronous != 0)
        return;
    bl_text_add(out, stream->row.number == 0 ? ", default stream" : ", stream ");
    if (stream->row.number != 0 && name[0] != '\0')
        add_escaped(out, name);
    else if (stream->row.number != 0)
        bl_text_format(out, "%u", stream->row.number);
}

const char *bl_journal_launch_state(const bl_journal_stream *stream, const bl_launch_record *launch)
{
    if (launch->number == 0)
        return "put nothing into the stream";
    if (!is_flying(&stream->row, launch))
        return "ended";
    if (stream->row.is_synchronous != 0)
        return "running";
    return launch->number - stream->row.passed == 1 ? "running or next to run" : "queued";
}

/* ---- telling --------------------------------------------------------------------------------------------------------- */

static void add_flying(uint64_t n_launches, uint64_t n_others, bl_text *out)
{
    if (n_launches > 0)
        bl_text_format(out, "%" PRIu64 " launch%s", n_launches, n_launches == 1 ? "" : "es");
    if (n_others > 0)
        bl_text_format(out, "%s%" PRIu64 " %scommand%s", n_launches > 0 ? " and " : "", n_others,
                       n_launches > 0 ? "other " : "", n_others == 1 ? " (a copy or a wait)" : "s (copies, waits)");
    bl_text_add(out, n_launches > 0 || n_others > 0 ? " in flight\n" : "nothing in flight\n");
}

static void tell_launch(const bl_journal_reader *reader, const bl_journal_stream *stream,
                        const bl_launch_record *launch, bl_text *out)
{
    bl_text_add(out, "        ");
    bl_journal_launch_words(reader, launch, out);
    bl_text_format(out, ": %s\n", bl_journal_launch_state(stream, launch));
}

/* What runs stands first, also where many are queued behind it. */
static void tell_launches(const bl_journal_reader *reader, const bl_journal_stream *stream, bl_text *out)
{
    uint64_t n_shown = (uint64_t)stream->n_last;
    if (stream->n_launches > n_shown)
        tell_launch(reader, stream, &stream->first, out);
    if (stream->n_launches > n_shown + 1)
        bl_text_format(out, "        and %" PRIu64 " behind it, queued\n", stream->n_launches - n_shown - 1);
    for (int i = stream->n_last - 1; i >= 0; i--)
        tell_launch(reader, stream, &stream->last[i], out);
}

static void tell_stream(const bl_journal_reader *reader, const bl_journal_stream *stream, bl_text *out)
{
    bl_text_add(out, "    ");
    bl_journal_stream_words(reader, stream, out);
    bl_text_add(out, ": ");
    if (stream->row.is_synchronous != 0)
        bl_text_add(out, stream->n_launches > 0 ? "inside of a kernel\n" : "outside of a kernel\n");
    else
        add_flying(stream->n_launches, stream->n_others, out);
    tell_launches(reader, stream, out);
}

void bl_journal_streams_tell(const bl_journal_reader *reader, bl_text *lines)
{
    bl_journal_stream stream;
    uint64_t n_launches = 0, n_others = 0;
    int n_streams = 0;
    for (int row = 0; row < bl_journal_reader_n_streams(reader); row++) {
        if (!bl_journal_stream_read(reader, row, &stream))
            continue;
        tell_stream(reader, &stream, lines);
        n_streams++;
        n_launches += stream.n_launches;
        n_others += stream.n_others;
    }
    if (n_streams > 1) {
        bl_text_add(lines, "    of all streams: ");
        add_flying(n_launches, n_others, lines);
    }
}
