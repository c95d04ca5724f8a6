/* SPDX-License-Identifier: Apache-2.0 */
/* The planted bug: a kernel that writes four bytes behind an allocation of four.  A sanitizer that does not report it
 * does not see this machine's GPUs, and its silence about a program would mean nothing.  The driver is looked up at run
 * time: Belay links no CUDA. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/run.h"

static const char kernel[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
                             ".visible .entry planted(.param .u64 to)\n{\n"
                             "    .reg .u64 %address;\n    .reg .u32 %value;\n"
                             "    ld.param.u64 %address, [to];\n    cvta.to.global.u64 %address, %address;\n"
                             "    mov.u32 %value, 1;\n    st.global.u32 [%address+4], %value;\n    ret;\n}\n";

/* The calls of the driver, under the names that its library exports. */
typedef struct driver {
    int (*init)(unsigned flags);
    int (*device)(int *device, int ordinal);
    int (*context)(void **context, unsigned flags, int device);
    int (*load)(void **module, const void *image);
    int (*function)(void **function, void *module, const char *name);
    int (*alloc)(uint64_t *address, size_t n_bytes);
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void *stream, void **arguments, void **extra);
    int (*wait)(void);
} driver;

/* An object pointer into a function pointer, as POSIX has it. */
static bool find(void *library, const char *name, void *slot)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL)
        fprintf(stderr, "planted bug: libcuda.so.1 has no %s\n", name);
    *(void **)slot = symbol;
    return symbol != NULL;
}

static bool open_driver(driver *d)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "planted bug: %s\n", dlerror());
        return false;
    }
    return find(library, "cuInit", &d->init) && find(library, "cuDeviceGet", &d->device) &&
           find(library, "cuCtxCreate_v2", &d->context) && find(library, "cuModuleLoadData", &d->load) &&
           find(library, "cuModuleGetFunction", &d->function) && find(library, "cuMemAlloc_v2", &d->alloc) &&
           find(library, "cuLaunchKernel", &d->launch) && find(library, "cuCtxSynchronize", &d->wait);
}

static bool went_well(const char *call, int code)
{
    if (code != 0)
        fprintf(stderr, "planted bug: %s gives error %d\n", call, code);
    return code == 0;
}

int bl_run_planted(void)
{
    driver d;
    void *context, *module, *function;
    uint64_t address = 0;
    void *arguments[] = {&address};
    int device;
    if (!open_driver(&d) || !went_well("cuInit", d.init(0)) || !went_well("cuDeviceGet", d.device(&device, 0)) ||
        !went_well("cuCtxCreate", d.context(&context, 0, device)) ||
        !went_well("cuModuleLoadData", d.load(&module, kernel)) ||
        !went_well("cuModuleGetFunction", d.function(&function, module, "planted")) ||
        !went_well("cuMemAlloc", d.alloc(&address, 4)) ||
        !went_well("cuLaunchKernel", d.launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL)))
        return 4;
    return went_well("cuCtxSynchronize", d.wait()) ? 0 : 3;
}
