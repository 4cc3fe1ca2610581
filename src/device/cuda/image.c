// The fat binary with the kernels: trireme.fatbin in the folder of the program.
#include "device/cuda/driver.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

status cuda_image_path(const host *h, char path[CUDA_PATH_BYTES])
{
    static const char name[] = "trireme.fatbin";
    file_info info;
    const ssize_t n = readlink("/proc/self/exe", path, CUDA_PATH_BYTES - sizeof(name) - 1);
    if (n <= 0) return fail(ST_IO, "the folder of this program is not known");
    path[n] = '\0';
    char *last = strrchr(path, '/');
    (void)snprintf(last != NULL ? last + 1 : path, sizeof(name), "%s", name);
    TRY(h->api->path_info(h, path, &info));
    if (info.kind == FILE_KIND_REGULAR) return ST_OK;
    return fail(ST_UNSUPPORTED,
                "there are no kernels for GPUs: %s is missing; build the program where nvcc of "
                "CUDA 12.8 or later is, and keep both files in one folder",
                path);
}

status cuda_image_map(const host *h, file **open, const void **image)
{
    char path[CUDA_PATH_BYTES];
    int64_t bytes = 0;
    TRY(cuda_image_path(h, path));
    TRY(h->api->file_open(h, path, FILE_READ, open));
    const status st = h->api->file_map(*open, image, &bytes);
    if (st == ST_OK && bytes > 0) return ST_OK;
    (void)h->api->file_close(*open);
    return st != ST_OK ? st : fail(ST_DAMAGED, "%s is empty; build it again", path);
}
