// llm.c's .bin: 256 int32 ([0] a magic number, [1] the version, [2] the count of tokens), then the
// tokens. Version 1 holds uint16 (GPT-2), version 7 under another magic uint32 (Llama 3).
#include "data/tokens/format.h"

#include <string.h>

enum {
    LLMC_GPT2 = 20240520,
    LLMC_LLAMA3 = 20240801,
    LLMC_EVAL = 20240522, // a file of multiple-choice tasks, not of text
    LLMC_HEADER_BYTES = 1024
};

static bool fits(const token_probe *p)
{
    int32_t magic;
    memcpy(&magic, p->head, sizeof(magic));
    return magic == LLMC_GPT2 || magic == LLMC_LLAMA3 || magic == LLMC_EVAL;
}

static status open_llmc(data_tokens *t, arena *a, const token_probe *p)
{
    (void)a;
    int32_t header[3];
    memcpy(header, p->head, sizeof(header));
    if (header[0] == LLMC_EVAL) {
        return fail(ST_UNSUPPORTED, "%s: an llm.c evaluation file (magic %d), not a text's tokens",
                    t->path, header[0]);
    }
    const int32_t version = header[0] == LLMC_GPT2 ? 1 : 7;
    if (header[1] != version) {
        return fail(ST_DAMAGED, "%s: llm.c version %d at byte 4, expected %d with magic %d",
                    t->path, header[1], version, header[0]);
    }
    if (header[2] < 0) {
        return fail(ST_DAMAGED, "%s: %d tokens at byte 8, 0 or more expected", t->path, header[2]);
    }
    t->type = header[0] == LLMC_GPT2 ? TOKEN_U16 : TOKEN_U32;
    t->offset = LLMC_HEADER_BYTES;
    t->count = header[2];
    TRY(token_file_open(t, t->path));
    return token_file_check_size(t, p->info.bytes);
}

const data_token_format data_token_format_llmc = {.name = "llm.c", .fits = fits, .open = open_llmc};
