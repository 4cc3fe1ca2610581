// Trials before a machine is admitted to a job: memory that keeps what was written, and products
// whose bits are known.
//
// A pattern is a function of a word's number, so a word that was written to a wrong address is seen
// too; then the same bits inverted. Operands of the products are small multiples of 1/8, so all
// sums are exact and every order and instruction must give the same bits, which whole numbers tell.
#include "base/fault.h"
#include "cli/doctor/doctor.h"
#include "train/bench.h"

#include <stdlib.h>

enum { PROVED_BYTES = 32 << 20 };

static uint64_t pattern_of(int64_t i, uint64_t flip)
{
    return ((uint64_t)i * 0x9E3779B97F4A7C15u) ^ flip;
}

int64_t doctor_memory_prove(uint64_t *words, int64_t count)
{
    volatile uint64_t *at = words; // each word is written and read
    for (int pass = 0; pass < 2; pass++) {
        const uint64_t flip = pass == 0 ? 0 : ~UINT64_C(0);
        for (int64_t i = 0; i < count; i++) at[i] = pattern_of(i, flip);
        if (fault_point("doctor.memory") != ST_OK) {
            error_clear();
            at[count / 3] ^= 0x10;
        }
        for (int64_t i = 0; i < count; i++) {
            if (at[i] != pattern_of(i, flip)) return i;
        }
    }
    return -1;
}

status doctor_memory_try(const doctor *d, doctor_finding *f)
{
    uint64_t *words = malloc(PROVED_BYTES);
    if (words == NULL) return ST_OK; // its lack is told elsewhere
    const int64_t wrong = doctor_memory_prove(words, PROVED_BYTES / 8);
    free(words);
    if (wrong < 0) return doctor_found(d, f, "%d MiB keep their bits", PROVED_BYTES >> 20);
    TRY(doctor_found(d, f, "word %lld of %d MiB has other bits than were written", (long long)wrong,
                     PROVED_BYTES >> 20));
    return doctor_costs(d, f, DOCTOR_FAIL,
                        "memory or a processor of this machine returns wrong values; replace it");
}

status doctor_product_try(const doctor *d, doctor_finding *f)
{
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16};
    const kern_hint hint = {.threads = 0};
    kern_context *kernels = NULL;
    int64_t wrong = 0;
    TRY(kern_context_create(d->cli->a, "cpu", &hint, &kernels));
    for (int64_t i = 0; i < COUNT_OF(types) && wrong == 0; i++) {
        const train_bench_on on = {.h = d->cli->h, .kernels = kernels, .type = types[i]};
        TRY(train_product_prove(&on, &wrong));
    }
    if (wrong == 0) return doctor_found(d, f, "products have their known bits");
    TRY(doctor_found(d, f, "%lld elements of a product are wrong", (long long)wrong));
    return doctor_costs(d, f, DOCTOR_FAIL,
                        "a processor or memory of this machine returns wrong values; replace it");
}
