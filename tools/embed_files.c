// Makes a C file out of small files, compressed: embed_files OUT FILE...
//
// For the build only: `trireme init` must work alone, so the text that it writes is in the program.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { LEVEL = 19, LIMIT_BYTES = 16 << 20 };

static int complain(const char *path, const char *why)
{
    fprintf(stderr, "embed_files: %s: %s\n", path, why);
    return 1;
}

static int file_read(const char *path, char **data, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) return complain(path, strerror(errno));
    *data = malloc(LIMIT_BYTES);
    *bytes = *data == NULL ? 0 : fread(*data, 1, LIMIT_BYTES, f);
    const int failed = *data == NULL || ferror(f) || *bytes == LIMIT_BYTES;
    (void)fclose(f);
    return failed ? complain(path, "cannot be read, or is too large") : 0;
}

static int array_write(FILE *out, int number, const char *path, size_t *packed, size_t *bytes)
{
    char *data = NULL;
    int st = file_read(path, &data, bytes);
    const size_t bound = ZSTD_compressBound(*bytes);
    unsigned char *small = st == 0 ? malloc(bound) : NULL;
    if (small != NULL) {
        *packed = ZSTD_compress(small, bound, data, *bytes, LEVEL);
        if (ZSTD_isError(*packed)) st = complain(path, ZSTD_getErrorName(*packed));
    }
    if (st == 0 && small != NULL) {
        fprintf(out, "static const unsigned char data_%d[] = {", number);
        for (size_t i = 0; i < *packed; i++) {
            fprintf(out, "%s%d,", i % 24 == 0 ? "\n" : "", small[i]);
        }
        fprintf(out, "\n};\n");
    }
    free(small);
    free(data);
    return st;
}

int main(int argc, char **argv)
{
    enum { FILES_MAX = 64 };
    size_t packed[FILES_MAX] = {0}, bytes[FILES_MAX] = {0};
    if (argc < 2 || argc - 2 > FILES_MAX) return complain("usage", "embed_files OUT FILE...");
    FILE *out = fopen(argv[1], "w");
    if (out == NULL) return complain(argv[1], strerror(errno));
    fprintf(out, "// Made by tools/embed_files.\n#include \"cli/embedded.h\"\n\n");
    int st = 0;
    for (int i = 2; i < argc && st == 0; i++) {
        st = array_write(out, i, argv[i], &packed[i - 2], &bytes[i - 2]);
    }
    fprintf(out, "\nconst cli_embedded_file cli_embedded_files[] = {\n");
    for (int i = 2; i < argc; i++) {
        const char *slash = strrchr(argv[i], '/');
        fprintf(out, "    {\"%s\", data_%d, %zu, %zu},\n", slash == NULL ? argv[i] : slash + 1, i,
                packed[i - 2], bytes[i - 2]);
    }
    fprintf(out, "    {0, 0, 0, 0},\n};\n");
    if (ferror(out) || fclose(out) != 0) st = complain(argv[1], "cannot be written");
    return st;
}
