/* SPDX-License-Identifier: Apache-2.0 */
/* Files that tools write into a folder: what cannot be written is said on stderr, in the tool's name. */
#ifndef TOOLS_PAGE_H
#define TOOLS_PAGE_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct page {
    const char *tool;
    FILE *out; /* NULL: page_close says so */
    char path[4096];
} page;

/* FOLDER/NAME, which is written anew. */
static inline void page_open(page *p, const char *tool, const char *folder, const char *name)
{
    p->tool = tool;
    snprintf(p->path, sizeof p->path, "%s/%s", folder, name);
    p->out = fopen(p->path, "w");
}

/* 1 where not all of it was written, as an exit status. */
static inline int page_close(page *p)
{
    int failed = p->out == NULL || ferror(p->out) != 0;
    if (p->out != NULL && fclose(p->out) != 0)
        failed = 1;
    if (failed)
        fprintf(stderr, "%s: cannot write %s: %s\n", p->tool, p->path, strerror(errno));
    return failed;
}

/* A page without arguments, whole. */
static inline int page_write(const char *tool, const char *folder, const char *name, void (*write)(FILE *out))
{
    page p;
    page_open(&p, tool, folder, name);
    if (p.out != NULL)
        write(p.out);
    return page_close(&p);
}

static inline void page_folder(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    mkdir(path, 0777); /* there already: fine; not possible: the page says so */
}

#endif
