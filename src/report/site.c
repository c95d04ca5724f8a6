/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* dladdr */
#include "report/site.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/source.h"

#ifdef BL_HAVE_LIBDW
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#endif

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static atomic_bool quotes = true;

#ifdef BL_HAVE_LIBDW
/* One lookup at a time: libdw's state is not shared between threads. */
static pthread_mutex_t lookup_lock = PTHREAD_MUTEX_INITIALIZER;

void bl_report_site_hold(bool holds)
{
    if (holds)
        pthread_mutex_lock(&lookup_lock);
    else
        pthread_mutex_unlock(&lookup_lock);
}

/* The library's own finders may ask a server for what is not on this machine; these look at the disk only. */
static int find_elf(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base, char **file_name, Elf **elf)
{
    (void)module, (void)data, (void)base, (void)elf;
    int fd = name[0] == '/' ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0)
        *file_name = strdup(name);
    return fd;
}

/* /usr/lib/debug/.build-id/ab/cdef....debug */
static int find_debug_file(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base, const char *file,
                           const char *link, GElf_Word crc, char **debug_file)
{
    (void)data, (void)name, (void)base, (void)file, (void)link, (void)crc;
    const unsigned char *id = NULL;
    GElf_Addr at;
    int n = dwfl_module_build_id(module, &id, &at);
    char path[160] = "/usr/lib/debug/.build-id/";
    size_t length = strlen(path);
    if (n < 2 || n > 32)
        return -1;
    for (int i = 0; i < n; i++)
        length += (size_t)snprintf(path + length, sizeof path - length, i == 1 ? "/%02x" : "%02x", id[i]);
    snprintf(path + length, sizeof path - length, ".debug");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        *debug_file = strdup(path);
    return fd;
}

static const Dwfl_Callbacks of_process = {.find_elf = find_elf, .find_debuginfo = find_debug_file};
static const Dwfl_Callbacks of_file = {.section_address = dwfl_offline_section_address,
                                       .find_debuginfo = find_debug_file};

/* What is known of an address. */
typedef struct place {
    char words[112];
    char path[512]; /* of the file of source, "" where that is not known */
    int line;
} place;

/* A relative path begins where the compiler ran. */
static bool say_line(const char *folder, const char *file, int number, place *out)
{
    if (file == NULL || number <= 0)
        return false;
    snprintf(out->words, sizeof out->words, "%s:%d", base_name(file), number);
    out->line = number;
    bool is_whole = file[0] == '/' || folder == NULL;
    int length = snprintf(out->path, sizeof out->path, "%s%s%s", is_whole ? "" : folder, is_whole ? "" : "/", file);
    if (out->path[0] != '/' || length >= (int)sizeof out->path)
        out->path[0] = '\0';
    return true;
}

/* Compilers that write no index of addresses (clang): the unit that covers the address is looked for. */
static bool describe_by_units(Dwfl_Module *module, Dwarf_Addr address, place *out)
{
    Dwarf_Addr bias = 0;
    Dwarf_Die *unit = dwfl_module_nextcu(module, NULL, &bias);
    while (unit != NULL && dwarf_haspc(unit, address - bias) <= 0)
        unit = dwfl_module_nextcu(module, unit, &bias);
    Dwarf_Line *line = unit != NULL ? dwarf_getsrc_die(unit, address - bias) : NULL;
    int number = 0;
    Dwarf_Attribute folder;
    return line != NULL && dwarf_lineno(line, &number) == 0 &&
           say_line(dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &folder)), dwarf_linesrc(line, NULL, NULL),
                    number, out);
}

/* File and line of a call, else function and offset of the return address behind it. */
static bool describe(Dwfl *dwfl, Dwarf_Addr address, place *out)
{
    Dwfl_Module *module = dwfl_addrmodule(dwfl, address - 1); /* inside of the call instruction */
    Dwfl_Line *line = module != NULL ? dwfl_module_getsrc(module, address - 1) : NULL;
    int number = 0;
    const char *file = line != NULL ? dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
    if (say_line(file != NULL ? dwfl_line_comp_dir(line) : NULL, file, number, out) ||
        (module != NULL && describe_by_units(module, address - 1, out)))
        return true;
    GElf_Off offset = 0;
    GElf_Sym symbol;
    const char *function =
        module != NULL ? dwfl_module_addrinfo(module, address - 1, &offset, &symbol, NULL, NULL, NULL) : NULL;
    if (function == NULL)
        return false;
    snprintf(out->words, sizeof out->words, "%s+0x%" PRIx64, function, (uint64_t)offset + 1);
    return true;
}

/* The line as it was when the program was made; later ones may be others. */
static void quote(Dwfl *dwfl, Dwarf_Addr address, const place *p, char source[BL_SOURCE_LINE + 1])
{
    struct stat status;
    const char *program = NULL;
    Dwfl_Module *module = dwfl_addrmodule(dwfl, address - 1);
    if (module != NULL)
        dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, &program, NULL);
    source[0] = '\0';
    if (p->path[0] != '\0' && program != NULL && stat(program, &status) == 0)
        bl_report_source_line(p->path, p->line, status.st_mtime, source, BL_SOURCE_LINE + 1);
}

/* A loop faults at the same few sites, and a lookup reads whole files. */
enum { N_KNOWN = 61 };
static struct known {
    uintptr_t address;
    char words[112];
    char source[BL_SOURCE_LINE + 1];
} known[N_KNOWN];

static bool look_up(uintptr_t address, struct known *out)
{
    place p = {.line = 0};
    Dwfl *dwfl = dwfl_begin(&of_process);
    bool found = dwfl != NULL && dwfl_linux_proc_report(dwfl, getpid()) == 0 &&
                 dwfl_report_end(dwfl, NULL, NULL) == 0 && describe(dwfl, address, &p);
    if (found) {
        snprintf(out->words, sizeof out->words, "%s", p.words);
        quote(dwfl, address, &p, out->source);
    }
    if (dwfl != NULL)
        dwfl_end(dwfl);
    return found;
}

/* Copies what is known of an address; `out` and `source` may be NULL. */
static bool find(uintptr_t address, char *out, char *source, size_t size)
{
    struct known *k = &known[address % N_KNOWN];
    pthread_mutex_lock(&lookup_lock);
    bool found = k->address == address;
    if (!found) {
        found = look_up(address, k);
        k->address = found ? address : 0;
    }
    if (found && out != NULL)
        snprintf(out, size, "%s", k->words);
    if (found && source != NULL)
        snprintf(source, size, "%s", k->source);
    pthread_mutex_unlock(&lookup_lock);
    return found;
}

/* The module's own address of an offset in its file, by its program headers; false when no segment holds it. */
static bool address_of(Dwfl_Module *module, uint64_t offset, Dwarf_Addr *out)
{
    GElf_Addr bias;
    Elf *elf = dwfl_module_getelf(module, &bias);
    size_t n = 0;
    if (elf == NULL || elf_getphdrnum(elf, &n) != 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        GElf_Phdr header;
        if (gelf_getphdr(elf, (int)i, &header) == NULL || header.p_type != PT_LOAD || offset < header.p_offset ||
            offset - header.p_offset >= header.p_filesz)
            continue;
        *out = header.p_vaddr + (offset - header.p_offset) + bias;
        return true;
    }
    return false;
}

static bool find_words_in(const char *path, uint64_t offset, char *out, size_t size)
{
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode))
        return false;
    pthread_mutex_lock(&lookup_lock);
    Dwfl *dwfl = dwfl_begin(&of_file);
    Dwfl_Module *module = dwfl != NULL ? dwfl_report_offline(dwfl, "", path, -1) : NULL;
    Dwarf_Addr address;
    place p = {.line = 0};
    bool found = module != NULL && dwfl_report_end(dwfl, NULL, NULL) == 0 && address_of(module, offset, &address) &&
                 describe(dwfl, address, &p);
    if (found)
        snprintf(out, size, "%s", p.words);
    if (dwfl != NULL)
        dwfl_end(dwfl);
    pthread_mutex_unlock(&lookup_lock);
    return found;
}
#else
void bl_report_site_hold(bool holds) { (void)holds; }

static bool find(uintptr_t address, char *out, char *source, size_t size)
{
    (void)address, (void)out, (void)source, (void)size;
    return false;
}
static bool find_words_in(const char *path, uint64_t offset, char *out, size_t size)
{
    (void)path, (void)offset, (void)out, (void)size;
    return false;
}
#endif

void bl_report_site(uintptr_t address, char *out, size_t size)
{
    Dl_info info;
    if (address == 0)
        snprintf(out, size, "unknown");
    else if (find(address, out, NULL, size))
        return;
    else if (dladdr((void *)(address - 1), &info) == 0 || info.dli_fname == NULL)
        snprintf(out, size, "%p", (void *)address);
    else if (info.dli_sname != NULL)
        snprintf(out, size, "%s+0x%zx", info.dli_sname, (size_t)(address - (uintptr_t)info.dli_saddr));
    else
        snprintf(out, size, "%s+0x%zx", base_name(info.dli_fname), (size_t)(address - (uintptr_t)info.dli_fbase));
}

void bl_report_site_source(uintptr_t address, char *out, size_t size)
{
    if (!atomic_load(&quotes) || address == 0 || !find(address, NULL, out, size))
        snprintf(out, size, "%s", "");
}

void bl_report_site_source_set(bool on) { atomic_store(&quotes, on); }

void bl_report_site_in(const char *path, uint64_t offset, char *out, size_t size)
{
    if (!find_words_in(path, offset, out, size))
        snprintf(out, size, "%s+0x%" PRIx64, base_name(path), offset);
}
