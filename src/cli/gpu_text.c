// Text leaves out the numbers that are not known, JSON has null in their places.
#include "cli/gpu_text.h"

#include <stddef.h>
#include <string.h>

// "92 of 700 W, "; without a limit, "92 W, ".
static status add_of(text *out, int64_t now, int64_t most, const char *unit)
{
    if (now < 0) return ST_OK;
    TRY(text_add(out, "%lld ", (long long)now));
    if (most >= 0) TRY(text_add(out, "of %lld ", (long long)most));
    return text_add(out, "%s, ", unit);
}

static int64_t watts(int64_t mw)
{
    return mw < 0 ? -1 : (mw + 500) / 1000;
}

static status add_ecc(const nvml_state *s, text *out)
{
    if (s->ecc_on < 0) return text_add(out, "no ECC, ");
    TRY(text_add(out, "ECC %s", s->ecc_on != 0 ? "on" : "off"));
    if (s->ecc_corrected >= 0 && s->ecc_uncorrected >= 0) {
        TRY(text_add(out, ": %lld corrected and %lld uncorrected errors",
                     (long long)s->ecc_corrected, (long long)s->ecc_uncorrected));
    }
    return text_add(out, ", ");
}

status cli_gpu_text(const nvml_state *s, text *out)
{
    char why[128];
    TRY(add_of(out, s->temperature_c, -1, "C"));
    TRY(add_of(out, watts(s->power_mw), watts(s->power_cap_mw), "W"));
    TRY(add_of(out, s->clock_mhz, s->clock_most_mhz, "MHz"));
    if (s->memory_clock_mhz >= 0) {
        TRY(text_add(out, "memory %lld MHz, ", (long long)s->memory_clock_mhz));
    }
    if (s->pcie_generation >= 0 && s->pcie_width >= 0) {
        TRY(text_add(out, "PCIe %lld x%lld, ", (long long)s->pcie_generation,
                     (long long)s->pcie_width));
    }
    if (s->links >= 0) {
        TRY(text_add(out, "%lld NVLink%s, ", (long long)s->links, text_plural(s->links, "s")));
    }
    TRY(add_ecc(s, out));
    if (s->mig_on > 0) TRY(text_add(out, "MIG on, "));
    nvml_throttle_text(max_i64(s->throttle, 0), why);
    return text_add(out, "throttled: %s", s->throttle < 0 ? "not known" : why);
}

status cli_gpu_json(const nvml_state *s, text *out)
{
    static const struct {
        const char *name;
        size_t at;
    } rows[] = {{"memory_bytes", offsetof(nvml_state, memory_bytes)},
                {"memory_used_bytes", offsetof(nvml_state, memory_used_bytes)},
                {"clock_mhz", offsetof(nvml_state, clock_mhz)},
                {"clock_most_mhz", offsetof(nvml_state, clock_most_mhz)},
                {"memory_clock_mhz", offsetof(nvml_state, memory_clock_mhz)},
                {"power_mw", offsetof(nvml_state, power_mw)},
                {"power_cap_mw", offsetof(nvml_state, power_cap_mw)},
                {"temperature_c", offsetof(nvml_state, temperature_c)},
                {"ecc_on", offsetof(nvml_state, ecc_on)},
                {"ecc_corrected", offsetof(nvml_state, ecc_corrected)},
                {"ecc_uncorrected", offsetof(nvml_state, ecc_uncorrected)},
                {"rows_pending", offsetof(nvml_state, rows_pending)},
                {"rows_failed", offsetof(nvml_state, rows_failed)},
                {"pcie_generation", offsetof(nvml_state, pcie_generation)},
                {"pcie_width", offsetof(nvml_state, pcie_width)},
                {"links", offsetof(nvml_state, links)},
                {"mig_on", offsetof(nvml_state, mig_on)},
                {"throttle", offsetof(nvml_state, throttle)}};
    TRY(text_add(out, "{\"name\": "));
    TRY(text_add_json(out, s->name));
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        int64_t value = 0;
        memcpy(&value, (const char *)s + rows[i].at, sizeof(value));
        if (value >= 0) {
            TRY(text_add(out, ", \"%s\": %lld", rows[i].name, (long long)value));
        } else {
            TRY(text_add(out, ", \"%s\": null", rows[i].name));
        }
    }
    return text_add(out, "}");
}

static status wrong_add(text *out, const char *what)
{
    return text_add(out, "%s%s", out->length > 0 ? "; " : "", what);
}

status cli_gpu_wrong(const nvml_state *s, text *out, bool *is_broken)
{
    char why[128];
    *is_broken = s->ecc_uncorrected > 0 || s->rows_failed > 0;
    if (s->ecc_uncorrected > 0) {
        TRY(wrong_add(out, "memory errors that ECC could not correct: reset or replace the GPU"));
    }
    if (s->rows_failed > 0) {
        TRY(wrong_add(out, "rows of memory could not be remapped: replace the GPU"));
    }
    if (s->rows_pending > 0) {
        TRY(wrong_add(out, "rows of memory wait to be remapped: reset the GPU (nvidia-smi -r)"));
    }
    if (s->throttle > 0 && (s->throttle & NVML_THROTTLE_BAD) != 0) {
        nvml_throttle_text(s->throttle & NVML_THROTTLE_BAD, why);
        TRY(wrong_add(out, "slowed down now: "));
        TRY(text_add(out, "%s", why));
    }
    if (s->pcie_width > 0 && s->pcie_width < s->pcie_width_most) {
        TRY(wrong_add(out, "PCIe is narrower than the GPU allows: look at its slot"));
    }
    if (s->mig_on > 0) {
        TRY(wrong_add(out,
                      "MIG is on: a rank gets a slice of the GPU, and slices do not reach each "
                      "other's memory"));
    }
    return ST_OK;
}
