// Bytes as tokens: id = byte, and 256 for the end of a text. It needs no file and loses no byte,
// and tests use it as the reference.
#include "data/tokenizer/family.h"

enum { BYTES_EOT = 256, BYTES_VOCAB = 257 };

static status encode(data_tokenizer *t, const char *bytes, int64_t count, int flags, data_ids *out)
{
    (void)t;
    (void)flags; // a text cannot spell the end of text
    int32_t ids[4096];
    for (int64_t at = 0; at < count; at += COUNT_OF(ids)) {
        const int64_t n = min_i64(count - at, COUNT_OF(ids));
        for (int64_t i = 0; i < n; i++) ids[i] = (uint8_t)bytes[at + i];
        TRY(data_ids_add(out, ids, n));
    }
    return ST_OK;
}

static const char all_bytes[] = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
                                "\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f"
                                "\x20\x21\x22\x23\x24\x25\x26\x27\x28\x29\x2a\x2b\x2c\x2d\x2e\x2f"
                                "\x30\x31\x32\x33\x34\x35\x36\x37\x38\x39\x3a\x3b\x3c\x3d\x3e\x3f"
                                "\x40\x41\x42\x43\x44\x45\x46\x47\x48\x49\x4a\x4b\x4c\x4d\x4e\x4f"
                                "\x50\x51\x52\x53\x54\x55\x56\x57\x58\x59\x5a\x5b\x5c\x5d\x5e\x5f"
                                "\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f"
                                "\x70\x71\x72\x73\x74\x75\x76\x77\x78\x79\x7a\x7b\x7c\x7d\x7e\x7f"
                                "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f"
                                "\x90\x91\x92\x93\x94\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f"
                                "\xa0\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xab\xac\xad\xae\xaf"
                                "\xb0\xb1\xb2\xb3\xb4\xb5\xb6\xb7\xb8\xb9\xba\xbb\xbc\xbd\xbe\xbf"
                                "\xc0\xc1\xc2\xc3\xc4\xc5\xc6\xc7\xc8\xc9\xca\xcb\xcc\xcd\xce\xcf"
                                "\xd0\xd1\xd2\xd3\xd4\xd5\xd6\xd7\xd8\xd9\xda\xdb\xdc\xdd\xde\xdf"
                                "\xe0\xe1\xe2\xe3\xe4\xe5\xe6\xe7\xe8\xe9\xea\xeb\xec\xed\xee\xef"
                                "\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff";
_Static_assert(sizeof(all_bytes) == 257, "each byte once");

static void token(const data_tokenizer *t, int32_t id, const char **bytes, int64_t *count,
                  bool *special)
{
    (void)t;
    *special = id == BYTES_EOT;
    *count = id >= 0 && id < BYTES_EOT ? 1 : 0;
    *bytes = all_bytes + (*count == 1 ? id : 0);
}

static int32_t find(const data_tokenizer *t, const char *wanted)
{
    (void)t;
    return wanted[0] != 0 && wanted[1] == 0 ? (uint8_t)wanted[0] : -1;
}

static void close_bytes(data_tokenizer *t)
{
    (void)t; // the arena holds all of it
}

status data_tokenizer_open_bytes(arena *a, data_tokenizer **out)
{
    data_tokenizer *t = NULL;
    TRY(arena_new(a, 1, &t));
    *t = (data_tokenizer){.row = &data_tokenizer_row_bytes,
                          .vocab_size = BYTES_VOCAB,
                          .eot = BYTES_EOT,
                          .cuts = DATA_CUT_BLANKS | DATA_CUT_ANYWHERE,
                          .id = hash128_of("bytes 1", 7)};
    *out = t;
    return ST_OK;
}

const data_tokenizer_row data_tokenizer_row_bytes = {
    .name = "bytes", .encode = encode, .token = token, .find = find, .close = close_bytes};
