/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds a fuzz target the files of a folder, so that seeds and past findings run in every build.  Names each file
 * before it runs, so that the last name printed is the guilty one. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Runs one file; -1 when it cannot be read. */
static int run_file(const char *path)
{
    printf("%s\n", path);
    fflush(stdout);
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        return -1;
    long size = ftell(file);
    if (size < 0)
        return -1;
    rewind(file);
    /* Exactly as long as the file: a sanitizer then sees a read behind it. */
    uint8_t *data = malloc(size ? (size_t)size : 1);
    if (!data || fread(data, 1, (size_t)size, file) != (size_t)size)
        return -1;
    fclose(file);
    LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    DIR *folder = opendir(argv[1]);
    if (!folder) {
        perror(argv[1]);
        return 1;
    }
    int n_files = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        if (run_file(path)) {
            perror(path);
            return 1;
        }
        n_files++;
    }
    closedir(folder);
    printf("%d files\n", n_files);
    return n_files ? 0 : 1;
}
