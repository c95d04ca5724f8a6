/* SPDX-License-Identifier: Apache-2.0 */
#include "report/html.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/memory.h"
#include "file/atomic.h"
#include "file/json.h"
#include "file/path.h"
#include "file/reader.h"
#include "report/metrics.h"

#define FAULT_LINE INT64_C(1048576)

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<style>\n"
    ":root{color-scheme:light dark;--ink:#1d2733;--soft:#67727e;--line:#d8dee4;--paper:#fff;--a:#0b6bcb;--b:#c4570c}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e3e8ee;--soft:#93a0ad;--line:#333d47;--paper:#14191f;--a:#5aa9f5;"
    "--b:#f0944d}}\n"
    "body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem auto;"
    "padding:0 1rem}\n"
    "h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.5rem}small,.soft{color:var(--soft)}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.2rem .8rem .2rem 0;"
    "text-align:right;border-bottom:1px solid var(--line)}td:first-child,th:first-child{text-align:left}\n"
    "pre{background:rgba(128,128,128,.12);padding:.7rem 1rem;overflow-x:auto;border-radius:6px;white-space:pre-wrap}\n"
    ".charts{display:flex;flex-wrap:wrap;gap:1.5rem}figure{margin:0;flex:1 1 16rem}svg{width:100%;height:auto}\n"
    "svg text{fill:var(--soft);font-size:11px}.axis{stroke:var(--line)}.a{stroke:var(--a);fill:none;stroke-width:2}\n"
    ".b{stroke:var(--b);fill:none;stroke-width:2}circle.a{fill:var(--a)}circle.b{fill:var(--b)}\n"
    "summary{cursor:pointer;color:var(--soft)}.facts td{text-align:left;vertical-align:top;overflow-wrap:anywhere}\n"
    ".key-a{color:var(--a)}.key-b{color:var(--b)}\n"
    "</style>\n";

/* ---- texts -------------------------------------------------------------------------------------------------------- */

void bl_report_html_escape(const char *text, bl_text *out)
{
    static const struct {
        char c;
        const char *entity;
    } entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}, {'\n', "\n"}};
    while (*text != '\0') {
        const char *entity = NULL;
        for (int i = 0; i < BL_COUNT(entities); i++)
            if (entities[i].c == *text)
                entity = entities[i].entity;
        int length = bl_utf8_length(text, (int64_t)strnlen(text, 4));
        length = length > 0 ? length : 1;
        if (entity != NULL)
            bl_text_add(out, entity);
        else
            bl_text_add_escaped(out, text, length, length);
        text += length;
    }
}

static void add_number(bl_text *out, double value, const char *format_or_percent)
{
    if (isnan(value))
        bl_text_add(out, "&ndash;");
    else if (format_or_percent[0] == '%')
        bl_text_format(out, "%.2f&#8239;%%", 100 * value);
    else if (format_or_percent[0] == 'r')
        bl_text_format(out, "%.0f", value);
    else
        bl_text_format(out, "%.4g", value);
}

/* ---- curves ------------------------------------------------------------------------------------------------------- */

enum { WIDTH = 320, HEIGHT = 180, LEFT = 52, RIGHT = 10, TOP = 12, BOTTOM = 24 };

/* A figure of a row by its place in the struct. */
static double figure(const bl_report_metrics *row, size_t offset)
{
    const void *at = (const char *)row + offset;
    return *(const double *)at;
}

typedef struct chart {
    const char *title;
    size_t line[2]; /* offsets of the columns */
    const char *name[2];
    int n_lines;
    bool from_zero;
    const char *format;
} chart;

static bool find_range(const bl_report_metrics *rows, int64_t n, const chart *c, double *low, double *high)
{
    bool is_empty = true;
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < c->n_lines; k++) {
            double y = figure(&rows[i], c->line[k]);
            if (!isfinite(y))
                continue;
            *low = is_empty || y < *low ? y : *low;
            *high = is_empty || y > *high ? y : *high;
            is_empty = false;
        }
    if (is_empty)
        return false;
    *low = c->from_zero ? fmin(*low, 0) : *low;
    if (*high - *low < 1e-12)
        *high = *low + (*low != 0 ? fabs(*low) * 0.1 : 1);
    return true;
}

static void add_line(bl_text *out, const bl_report_metrics *rows, int64_t n, size_t offset, const char *style,
                     double low, double high)
{
    double step = n > 1 ? (double)(WIDTH - LEFT - RIGHT) / (double)(n - 1) : 0;
    bl_text points = {0};
    for (int64_t i = 0; i < n; i++) {
        double y = figure(&rows[i], offset);
        if (!isfinite(y))
            continue;
        double at_x = LEFT + step * (double)i, at_y = TOP + (HEIGHT - TOP - BOTTOM) * (high - y) / (high - low);
        bl_text_format(&points, "%.1f,%.1f ", at_x, at_y);
        if (n <= 40)
            bl_text_format(out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>", style, at_x, at_y);
    }
    bl_text_format(out, "<polyline class=\"%s\" points=\"%s\"/>", style, bl_text_get(&points));
    out->failed = out->failed || points.failed;
    bl_text_fini(&points);
}

static void add_chart(bl_text *out, const bl_report_metrics *rows, int64_t n, const chart *c)
{
    static const char *const styles[] = {"a", "b"};
    double low = 0, high = 0;
    if (!find_range(rows, n, c, &low, &high))
        return;
    bl_text_format(out, "<figure><figcaption>%s", c->title);
    for (int k = 0; k < c->n_lines && c->n_lines > 1; k++)
        bl_text_format(out, " <small class=\"key-%s\">&#9679; %s</small>", styles[k], c->name[k]);
    bl_text_format(out, "</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s by epoch\">", WIDTH,
                   HEIGHT, c->title);
    for (int k = 0; k <= 2; k++) {
        double y = TOP + (HEIGHT - TOP - BOTTOM) * k / 2.0;
        bl_text_format(out, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT, WIDTH - RIGHT,
                       y, y);
        bl_text_format(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 6, y + 4);
        add_number(out, high - (high - low) * k / 2, c->format);
        bl_text_add(out, "</text>");
    }
    bl_text_format(out, "<text x=\"%d\" y=\"%d\">epoch %" PRId64 "</text>", LEFT, HEIGHT - 6, rows[0].epoch);
    if (n > 1)
        bl_text_format(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%" PRId64 "</text>", WIDTH - RIGHT, HEIGHT - 6,
                       rows[n - 1].epoch);
    for (int k = 0; k < c->n_lines; k++)
        add_line(out, rows, n, c->line[k], styles[k], low, high);
    bl_text_add(out, "</svg></figure>\n");
}

static void add_charts(bl_text *out, const bl_report_metrics *rows, int64_t n)
{
    static const chart charts[] = {
        {"Loss",
         {offsetof(bl_report_metrics, train_loss), offsetof(bl_report_metrics, valid_loss)},
         {"training", "validation"},
         2,
         false,
         "g"},
        {"Accuracy",
         {offsetof(bl_report_metrics, train_accuracy), offsetof(bl_report_metrics, valid_accuracy)},
         {"training", "validation"},
         2,
         false,
         "%"},
        {"Samples a second", {offsetof(bl_report_metrics, samples_per_second)}, {"throughput"}, 1, true, "r"},
    };
    bl_text_add(out, "<div class=\"charts\">\n");
    for (int i = 0; i < BL_COUNT(charts); i++)
        add_chart(out, rows, n, &charts[i]);
    bl_text_add(out, "</div>\n");
}

static void add_epochs(bl_text *out, const bl_report_metrics *rows, int64_t n)
{
    bl_text_add(out, "<h2>Epochs</h2>\n<table><tr><th>epoch</th><th>steps</th><th>training loss</th><th>accuracy</th>"
                     "<th>validation loss</th><th>accuracy</th><th>rate</th><th>samples/s</th><th>seconds</th>"
                     "<th>faults</th><th></th></tr>\n");
    for (int64_t i = 0; i < n; i++) {
        const bl_report_metrics *r = &rows[i];
        const struct {
            double value;
            const char *format;
        } cells[] = {{r->train_loss, "g"}, {r->train_accuracy, "%"},     {r->valid_loss, "g"}, {r->valid_accuracy, "%"},
                     {r->lr, "g"},         {r->samples_per_second, "r"}, {r->seconds, "g"}};
        bl_text_format(out, "<tr><td>%" PRId64 "</td><td>%" PRId64 "</td>", r->epoch, r->steps);
        for (int k = 0; k < BL_COUNT(cells); k++) {
            bl_text_add(out, "<td>");
            add_number(out, cells[k].value, cells[k].format);
            bl_text_add(out, "</td>");
        }
        bl_text_format(out, "<td>%" PRId64 "</td><td>%s</td></tr>\n", r->faults, r->best ? "best" : "");
    }
    bl_text_add(out, "</table>\n");
}

/* ---- parts from the folder ---------------------------------------------------------------------------------------- */

static belay_code add_metrics(const char *path, bl_text *out, bl_error *error)
{
    bl_report_metrics *rows;
    int64_t n;
    TRY(bl_report_metrics_read(path, &rows, &n, error));
    if (n > 0) {
        add_charts(out, rows, n);
        add_epochs(out, rows, n);
    } else {
        bl_text_add(out, "<p class=\"soft\">No epoch has ended yet.</p>\n");
    }
    bl_free(rows);
    return BELAY_OK;
}

/* A JSON value as a person reads it. */
static void add_value(const json_t *value, bl_text *out)
{
    if (json_is_string(value)) {
        bl_report_html_escape(json_string_value(value), out);
        return;
    }
    bl_text words = {0};
    if (json_is_real(value))
        bl_text_format(&words, "%.9g", json_real_value(value));
    else
        bl_json_to_text(value, &words);
    bl_report_html_escape(bl_text_get(&words), out);
    out->failed = out->failed || words.failed;
    bl_text_fini(&words);
}

/* "best_accuracy" as "best accuracy". */
static void add_key(const char *name, bl_text *out)
{
    int64_t from = out->n_bytes;
    bl_report_html_escape(name, out);
    for (int64_t i = from; i < out->n_bytes; i++)
        out->bytes[i] = out->bytes[i] == '_' ? ' ' : out->bytes[i];
}

/* Every fact of the line, closed until it is asked for; the paragraph stands above. */
static void add_facts(const json_t *fault, bl_text *out)
{
    const char *name;
    json_t *value;
    bl_text_add(out, "<details><summary>All facts</summary>\n<table class=\"facts\">\n");
    json_object_foreach((json_t *)fault, name, value)
    {
        if (strcmp(name, "text") == 0)
            continue;
        bl_text_add(out, "<tr><td>");
        add_key(name, out);
        bl_text_add(out, "</td><td>");
        add_value(value, out);
        bl_text_add(out, "</td></tr>\n");
    }
    bl_text_add(out, "</table></details>\n");
}

static void add_fault(const json_t *fault, bl_text *out)
{
    const char *words = json_string_value(json_object_get(fault, "text"));
    const char *policy = json_string_value(json_object_get(fault, "policy"));
    bl_text_add(out, "<pre>");
    bl_report_html_escape(words != NULL ? words : "?", out);
    const char *const ranges[] = {"inputs", "labels"};
    for (int i = 0; i < BL_COUNT(ranges); i++) {
        const json_t *range = json_object_get(fault, ranges[i]);
        if (json_is_integer(json_object_get(range, "min")))
            bl_text_format(out, "    %s: %" JSON_INTEGER_FORMAT " .. %" JSON_INTEGER_FORMAT "\n", ranges[i],
                           json_integer_value(json_object_get(range, "min")),
                           json_integer_value(json_object_get(range, "max")));
    }
    if (policy != NULL) {
        bl_text_add(out, "    taken: ");
        bl_report_html_escape(policy, out);
        bl_text_add(out, "\n");
    }
    bl_text_add(out, "</pre>\n");
    add_facts(fault, out);
}

static belay_code add_fault_lines(bl_file_stream *stream, bl_text *out, bl_error *error)
{
    const char *line;
    int64_t n_bytes, number = 1;
    for (;; number++) {
        TRY(bl_file_stream_line(stream, number, &line, &n_bytes, error));
        if (line == NULL)
            break;
        json_t *fault;
        if (number > BL_REPORT_HTML_FAULTS)
            continue;
        TRY(bl_json_parse(line, n_bytes, bl_file_stream_path(stream), number, &fault, error));
        add_fault(fault, out);
        json_decref(fault);
    }
    if (number == 1)
        bl_text_add(out, "<p class=\"soft\">None.</p>\n");
    if (number - 1 > BL_REPORT_HTML_FAULTS)
        bl_text_format(out, "<p class=\"soft\">%" PRId64 " more in faults.jsonl.</p>\n",
                       number - 1 - BL_REPORT_HTML_FAULTS);
    return BELAY_OK;
}

static belay_code add_faults(const char *path, bl_text *out, bl_error *error)
{
    bl_file_stream *stream;
    bl_text_add(out, "<h2>Faults</h2>\n");
    TRY(bl_file_stream_open(path, FAULT_LINE, &stream, error));
    belay_code code = add_fault_lines(stream, out, error);
    bl_file_stream_close(stream);
    return code;
}

static void add_settings(const json_t *settings, bl_text *out)
{
    const char *name;
    json_t *setting;
    bl_text_add(out, "<h2>Settings</h2>\n<table><tr><th>setting</th><th>value</th><th>set by</th></tr>\n");
    json_object_foreach((json_t *)settings, name, setting)
    {
        const json_t *value = json_is_object(setting) ? json_object_get(setting, "value") : setting;
        const char *by = json_string_value(json_object_get(setting, "set_by"));
        bl_text_add(out, "<tr><td>");
        bl_report_html_escape(name, out);
        bl_text_add(out, "</td><td>");
        add_value(value, out);
        bl_text_add(out, "</td><td>");
        bl_report_html_escape(by != NULL ? by : "", out);
        bl_text_add(out, "</td></tr>\n");
    }
    bl_text_add(out, "</table>\n");
}

/* How the run ended. */
static void add_outcome(const json_t *outcome, bl_text *out)
{
    const char *name;
    json_t *value;
    if (!json_is_object(outcome))
        return;
    bl_text_add(out, "<table>\n");
    json_object_foreach((json_t *)outcome, name, value)
    {
        bl_text_add(out, "<tr><td>");
        add_key(name, out);
        bl_text_add(out, "</td><td>");
        add_value(value, out);
        bl_text_add(out, "</td></tr>\n");
    }
    bl_text_add(out, "</table>\n");
}

static void add_title(const char *folder, bl_text *out)
{
    const char *slash = strrchr(folder, '/'), *name = slash != NULL && slash[1] != '\0' ? slash + 1 : folder;
    bl_text_add(out, head);
    bl_text_add(out, "<title>Belay: ");
    bl_report_html_escape(name, out);
    bl_text_add(out, "</title></head>\n<body>\n<h1>");
    bl_report_html_escape(name, out);
    bl_text_add(out, "</h1>\n");
}

static belay_code add_parts(const char *folder, const char *const path[3], bl_text *out, bl_error *error)
{
    json_t *run = NULL;
    add_title(folder, out);
    if (bl_file_kind_get(path[0]) == BL_FILE_REGULAR)
        TRY(bl_json_read(path[0], 0, &run, error));
    add_outcome(json_object_get(run, "outcome"), out);
    belay_code code = BELAY_OK;
    if (bl_file_kind_get(path[1]) == BL_FILE_REGULAR)
        code = add_metrics(path[1], out, error);
    if (code == BELAY_OK && bl_file_kind_get(path[2]) == BL_FILE_REGULAR)
        code = add_faults(path[2], out, error);
    if (code == BELAY_OK && json_is_object(json_object_get(run, "settings")))
        add_settings(json_object_get(run, "settings"), out);
    json_decref(run);
    bl_text_add(out, "</body></html>\n");
    return code;
}

static belay_code write_page(const char *folder, const char *const path[4], bl_error *error)
{
    bl_text page = {0};
    belay_code code = add_parts(folder, path, &page, error);
    if (code == BELAY_OK && page.failed)
        code = bl_file_no_memory(error, "write", path[3]);
    if (code == BELAY_OK)
        code = bl_file_replace(path[3], bl_text_get(&page), page.n_bytes, error);
    bl_text_fini(&page);
    return code;
}

belay_code bl_report_html(const char *folder, bl_error *error)
{
    static const char *const names[4] = {"run.json", "metrics.csv", "faults.jsonl", "report.html"};
    char *path[4] = {0};
    bool is_whole = true;
    for (int i = 0; i < 4; i++) {
        path[i] = bl_file_join(folder, names[i]);
        is_whole = is_whole && path[i] != NULL;
    }
    belay_code code = is_whole ? write_page(folder, (const char *const *)path, error)
                               : bl_file_no_memory(error, "write the report of", folder);
    for (int i = 0; i < 4; i++)
        bl_free(path[i]);
    return code;
}
