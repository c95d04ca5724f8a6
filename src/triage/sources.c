/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "file/path.h"
#include "triage/sources.h"

typedef struct met {
    dev_t device;
    ino_t inode;
} met;

typedef struct finding {
    bl_sources *out;
    bl_text *notes;
    bl_error *error;
    int64_t n_passed_over, n_over_limit, n_folders;
    met *met; /* files and folders */
    int64_t n_met, met_capacity;
} finding;

/* Endings of files that are no logs. */
static const char *const no_logs[] = {".safetensors", ".pt",      ".pth",   ".bin",      ".ckpt",   ".npy",  ".npz",
                                      ".h5",          ".parquet", ".arrow", ".png",      ".jpg",    ".jpeg", ".pdf",
                                      ".html",        ".so",      ".o",     ".a",        ".pyc",    ".tar",  ".tgz",
                                      ".zip",         ".xz",      ".bz2",   ".db",       ".sqlite", ".onnx", ".engine",
                                      ".plan",        ".csv",     ".tsv",   ".nsys-rep", ".ncu-rep"};

static bool is_no_log(const char *name)
{
    const char *ending = bl_file_extension(name);
    for (size_t i = 0; i < sizeof no_logs / sizeof no_logs[0]; i++)
        if (strcasecmp(ending, no_logs[i]) == 0)
            return true;
    return name[0] == '.';
}

/* Whether the file or folder was met before, by another name or on another way; else it is from now on.  Without this a
 * few links in a circle would be as many files as there are ways through them. */
static belay_code meet(finding *f, const struct stat *status, bool *is_known)
{
    *is_known = false;
    for (int64_t i = 0; i < f->n_met && !*is_known; i++)
        *is_known = f->met[i].device == status->st_dev && f->met[i].inode == status->st_ino;
    if (*is_known)
        return BELAY_OK;
    if (!bl_grow(&f->met, &f->met_capacity, f->n_met + 1, sizeof *f->met))
        return bl_error_set(f->error, BELAY_MEM_EXHAUSTED, "no memory to list the files");
    f->met[f->n_met++] = (met){.device = status->st_dev, .inode = status->st_ino};
    return BELAY_OK;
}

/* A path that cannot be looked at is told of when it is opened. */
static belay_code is_there(finding *f, const char *path, bool *is_known)
{
    struct stat status;
    *is_known = false;
    if (strcmp(path, "-") != 0 && stat(path, &status) == 0)
        return meet(f, &status, is_known);
    for (int i = 0; i < f->out->n && !*is_known; i++)
        *is_known = strcmp(f->out->list[i].path, path) == 0;
    return BELAY_OK;
}

static belay_code add(finding *f, const char *path)
{
    bool is_known = false;
    if (f->out->n == BL_SOURCES_MOST) {
        f->n_over_limit++;
        return BELAY_OK;
    }
    TRY(is_there(f, path, &is_known));
    if (is_known)
        return BELAY_OK;
    char *kept = bl_strdup(path);
    if (kept == NULL || !bl_grow(&f->out->list, &f->out->capacity, f->out->n + 1, sizeof(bl_source))) {
        bl_free(kept);
        return bl_file_no_memory(f->error, "remember", path);
    }
    f->out->list[f->out->n++] =
        (bl_source){.path = kept, .rank = -1, .first_time = BL_NO_TIME, .last_time = BL_NO_TIME};
    return BELAY_OK;
}

static belay_code add_folder(finding *f, const char *folder, int depth);

static belay_code add_entry(finding *f, const char *folder, const char *name, int depth)
{
    char *path = bl_file_join(folder, name);
    if (path == NULL)
        return bl_file_no_memory(f->error, "remember", folder);
    bl_file_kind kind = bl_file_kind_get(path);
    belay_code code = BELAY_OK;
    if (kind == BL_FILE_FOLDER && name[0] != '.' && depth < BL_SOURCES_DEPTH)
        code = add_folder(f, path, depth + 1);
    else if (kind == BL_FILE_REGULAR && !is_no_log(name))
        code = add(f, path);
    else
        f->n_passed_over++;
    bl_free(path);
    return code;
}

static belay_code add_folder(finding *f, const char *folder, int depth)
{
    char reason[128];
    struct stat status;
    bool is_known = false;
    if (stat(folder, &status) == 0)
        TRY(meet(f, &status, &is_known));
    if (is_known)
        return BELAY_OK;
    if (f->n_folders == BL_SOURCES_MOST) {
        f->n_over_limit++;
        return BELAY_OK;
    }
    f->n_folders++;
    DIR *dir = opendir(folder);
    if (dir == NULL && depth == 0)
        return bl_error_set(f->error, BELAY_FILE_OPEN, "cannot read folder '%s': %s", folder,
                            bl_error_errno(errno, reason));
    if (dir == NULL) {
        int number = errno;
        bl_text_add_escaped(f->notes, folder, (int64_t)strlen(folder), INT64_MAX);
        bl_text_format(f->notes, ": not read: %s\n", bl_error_errno(number, reason));
        return BELAY_OK;
    }
    belay_code code = BELAY_OK;
    for (struct dirent *entry; code == BELAY_OK && (entry = readdir(dir)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            code = add_entry(f, folder, entry->d_name, depth);
    closedir(dir);
    return code;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static int by_name(const void *left, const void *right)
{
    const bl_source *a = left, *b = right;
    int order = strcmp(base_name(a->path), base_name(b->path));
    return order != 0 ? order : strcmp(a->path, b->path);
}

static belay_code find_all(finding *f, const char *const *paths, int n_paths)
{
    for (int i = 0; i < n_paths; i++)
        if (strcmp(paths[i], "-") != 0 && bl_file_kind_get(paths[i]) == BL_FILE_FOLDER)
            TRY(add_folder(f, paths[i], 0));
        else
            TRY(add(f, paths[i]));
    return BELAY_OK;
}

belay_code bl_sources_find(const char *const *paths, int n_paths, bl_sources *out, bl_text *notes, bl_error *error)
{
    finding f = {.out = out, .notes = notes, .error = error};
    belay_code code = find_all(&f, paths, n_paths);
    bl_free(f.met);
    TRY(code);
    if (out->n > 1)
        qsort(out->list, (size_t)out->n, sizeof *out->list, by_name);
    if (f.n_passed_over > 0)
        bl_text_format(notes, "%lld %s passed over: weights, tables, hidden files\n", (long long)f.n_passed_over,
                       f.n_passed_over == 1 ? "file in a folder was" : "files in folders were");
    if (f.n_over_limit > 0)
        bl_text_format(notes, "%lld files or folders were left out: at most %d are read\n", (long long)f.n_over_limit,
                       BL_SOURCES_MOST);
    return BELAY_OK;
}

void bl_sources_fini(bl_sources *sources)
{
    for (int i = 0; i < sources->n; i++)
        bl_free((char *)(uintptr_t)sources->list[i].path);
    bl_free(sources->list);
    *sources = (bl_sources){0};
}
