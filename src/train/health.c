#include "train/health.h"

const char *health_finding_name(health_finding f)
{
    static const char *const names[HEALTH_FINDINGS] = {
        [HEALTH_UNCORRECTED] = "memory errors that ECC cannot correct",
        [HEALTH_ROWS] = "rows of memory that must be remapped",
        [HEALTH_TREND] = "corrected memory errors",
        [HEALTH_THROTTLED] = "throttling by heat, power or a fault"};
    return names[f];
}

uint32_t health_see(health *h, const nvml_state *s)
{
    const bool slowed = s->throttle > 0 && (s->throttle & NVML_THROTTLE_BAD) != 0;
    uint32_t now = 0;
    if (!h->has_begun || h->corrected < 0) h->corrected = s->ecc_corrected;
    if (!h->has_begun || h->uncorrected < 0) h->uncorrected = s->ecc_uncorrected;
    h->has_begun = true;
    h->throttled = slowed ? h->throttled + 1 : 0;
    if (s->ecc_uncorrected > h->uncorrected) now |= 1u << HEALTH_UNCORRECTED;
    if (s->rows_pending > 0 || s->rows_failed > 0) now |= 1u << HEALTH_ROWS;
    if (s->ecc_corrected - h->corrected >= HEALTH_CORRECTED) now |= 1u << HEALTH_TREND;
    if (h->throttled >= HEALTH_LOOKS) now |= 1u << HEALTH_THROTTLED;
    now &= ~h->found;
    h->found |= now;
    return now;
}
