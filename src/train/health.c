#include "train/health.h"

#include <stdio.h>

const char *health_finding_name(health_finding f)
{
    static const char *const names[HEALTH_FINDINGS] = {
        [HEALTH_UNCORRECTED] = "memory errors that ECC cannot correct",
        [HEALTH_ROWS] = "rows of memory that must be remapped",
        [HEALTH_TREND] = "corrected memory errors",
        [HEALTH_THROTTLED] = "throttling by heat, power or a fault",
        [HEALTH_LINKS] = "errors of links"};
    return names[f];
}

const char *health_part_name(health_part p)
{
    static const char *const names[HEALTH_PARTS] = {
        [HEALTH_GPU] = "GPU", [HEALTH_MACHINE] = "machine"};
    return names[p];
}

void health_cause(health_part p, health_finding f, char out[HEALTH_CAUSE_BYTES])
{
    (void)snprintf(out, HEALTH_CAUSE_BYTES, "%s: %s", health_part_name(p), health_finding_name(f));
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

uint32_t health_see_machine(health *h, const host_errors *e)
{
    const bool has_begun = h->has_begun, slowed = has_begun && e->throttled > h->slowed;
    const nvml_state s = {.ecc_corrected = e->memory_corrected,
                          .ecc_uncorrected = e->memory_uncorrected,
                          .rows_pending = -1,
                          .rows_failed = -1,
                          .throttle = slowed ? NVML_THROTTLE_BAD : 0};
    uint32_t now = health_see(h, &s);
    if (!has_begun || h->links < 0) h->links = e->links;
    h->slowed = e->throttled;
    if (e->links - h->links < HEALTH_CORRECTED || (h->found & 1u << HEALTH_LINKS) != 0) return now;
    h->found |= 1u << HEALTH_LINKS;
    return now | 1u << HEALTH_LINKS;
}
