// Fuzz entry: a checkpoint's folder: the manifest's text, a line "%%", the bytes of its state file.
// If the text begins with '+' its own checksum is put right, and so are @HEAD@ and @DATA@, so that
// what lies behind the checksums is met. A checkpoint that opens is walked in full; whatever is
// refused names the folder and is the user's to mend.
#include "base/hash.h"
#include "checkpoint/manifest.h"
#include "memory_host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static status must(status st)
{
    ASSERT(st == ST_OK);
    return st;
}

static void check_refusal(void)
{
    const error_record *e = error_last();
    const int code = status_exit_code(e->code);
    ASSERT(code == 5 || code == 76 || e->code == ST_NO_MEMORY || e->code == ST_NOT_FOUND);
    ASSERT(strstr(e->text, "check-folder") != NULL || e->code == ST_NO_MEMORY);
}

static const char *find(const char *text, int64_t count, const char *word)
{
    return memmem(text, (size_t)count, word, strlen(word));
}

// The text with the checksums that it asks for.
static void mended(text *out, const char *manifest, int64_t count, const uint8_t *state,
                   int64_t state_count)
{
    char hex[33];
    uint64_t length = 0;
    if (state_count >= 8) memcpy(&length, state, 8);
    const int64_t head =
        length <= (uint64_t)state_count ? (int64_t)min_i64((int64_t)length + 8, state_count) : 0;
    while (count > 0) {
        const char *mark = find(manifest, count, "@HEAD@"),
                   *other = find(manifest, count, "@DATA@");
        const bool is_data = mark == NULL || (other != NULL && other < mark);
        if (is_data) mark = other;
        const int64_t before = mark == NULL ? count : mark - manifest;
        must(text_add_bytes(out, manifest, before));
        if (mark == NULL) break;
        const hash128 sum =
            is_data ? hash128_of(state + head, state_count - head) : hash128_of(state, head);
        must(text_add(out, "%s", hash128_text(sum, hex)));
        manifest += before + 6;
        count -= before + 6;
    }
    must(text_add(out, "\n"));
    must(text_add(out, " \"manifest\": \"%s\"\n}\n",
                  hash128_text(hash128_of(out->bytes, out->length), hex)));
}

static void walk(ckpt_reader *r)
{
    for (int64_t i = 0; i < ckpt_reader_count(r); i++) {
        const ckpt_tensor *t = ckpt_reader_at(r, i);
        const void *bytes = NULL;
        ASSERT(ckpt_reader_find(r, t->name) == t);
        if (ckpt_reader_data(r, t, &bytes) != ST_OK) {
            check_refusal();
            continue;
        }
        const hash128 sum = hash128_of(bytes, t->bytes);
        ASSERT(sum.low == t->checksum.low && sum.high == t->checksum.high);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *a = NULL;
    if (arena_create("fuzz", 64 << 20, &a) != ST_OK) return 0;
    const bool mend = size > 0 && data[0] == '+';
    const char *manifest = (const char *)data + (mend ? 1 : 0);
    int64_t count = (int64_t)size - (mend ? 1 : 0), state_count = 0;
    const uint8_t *state = data + size;
    const char *border = find(manifest, count, "\n%%\n");
    if (border != NULL) {
        state = (const uint8_t *)border + 4;
        state_count = manifest + count - (const char *)state;
        count = border + 1 - manifest;
    }
    text whole = {.a = a};
    if (mend) {
        mended(&whole, manifest, count, state, state_count);
        manifest = whole.bytes;
        count = whole.length;
    }
    memory_files files = {0};
    files.files[0] = (struct file){"check-folder/manifest.json", manifest, count, NULL};
    files.files[1] = (struct file){"check-folder/state.safetensors", state, state_count, NULL};
    files.files[2] = (struct file){"check-folder/config.json", "{}", 2, NULL};
    const host h = {.api = &memory_api, .state = &files};
    ckpt_reader *r = NULL;
    if (ckpt_reader_open(&h, "check-folder", &r) == ST_OK) {
        walk(r);
        ckpt_reader_close(r);
        text report = {.a = a};
        const status st = ckpt_verify(&h, a, "check-folder", &report);
        ASSERT(st == ST_OK || report.length > 0);
    } else {
        check_refusal();
    }
    arena_destroy(a);
    return 0;
}
