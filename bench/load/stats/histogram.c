/* See histogram.h. */
#include "stats/histogram.h"

static const uint64_t SUB_COUNT = 1u << PBL_HISTOGRAM_SUB_BITS;

static unsigned bucket_of(uint64_t value)
{
    if (value < SUB_COUNT)
        return (unsigned)value;
    unsigned top = 63 - (unsigned)__builtin_clzll(value);
    unsigned shift = top - PBL_HISTOGRAM_SUB_BITS;
    return (unsigned)(((shift + 1) << PBL_HISTOGRAM_SUB_BITS) + ((value >> shift) - SUB_COUNT));
}

static uint64_t upper_edge(unsigned bucket)
{
    if (bucket < SUB_COUNT)
        return bucket;
    unsigned shift = (bucket >> PBL_HISTOGRAM_SUB_BITS) - 1;
    uint64_t mantissa = (bucket & (SUB_COUNT - 1)) + SUB_COUNT;
    return ((mantissa + 1) << shift) - 1;
}

void pbl_histogram_record(struct pbl_histogram *histogram, uint64_t value_ns)
{
    uint64_t limit = (1ull << PBL_HISTOGRAM_MAX_BITS) - 1;
    histogram->count++;
    histogram->sum_ns += value_ns;
    if (value_ns > histogram->max_ns)
        histogram->max_ns = value_ns;
    histogram->buckets[bucket_of(value_ns > limit ? limit : value_ns)]++;
}

double pbl_histogram_quantile_us(const struct pbl_histogram *histogram, double q)
{
    if (histogram->count == 0)
        return 0;
    uint64_t rank = (uint64_t)(q * (double)histogram->count);
    if (rank >= histogram->count)
        rank = histogram->count - 1;
    uint64_t seen = 0;
    unsigned last = sizeof histogram->buckets / sizeof histogram->buckets[0];
    for (unsigned bucket = 0; bucket < last; bucket++) {
        seen += histogram->buckets[bucket];
        if (seen > rank) {
            uint64_t edge = upper_edge(bucket);
            return (double)(edge < histogram->max_ns ? edge : histogram->max_ns) / 1e3;
        }
    }
    return (double)histogram->max_ns / 1e3;
}

void pbl_histogram_print_buckets(FILE *out, const struct pbl_histogram *histogram)
{
    const char *separator = "";
    fputc('[', out);
    for (unsigned bucket = 0; bucket < sizeof histogram->buckets / sizeof histogram->buckets[0]; bucket++) {
        if (histogram->buckets[bucket] == 0)
            continue;
        fprintf(out, "%s[%u,%llu]", separator, bucket, (unsigned long long)histogram->buckets[bucket]);
        separator = ",";
    }
    fputc(']', out);
}

void pbl_histogram_print(FILE *out, const struct pbl_histogram *histogram)
{
    fprintf(out, "{\"mean\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p99.9\":%.1f,\"max\":%.1f}",
            histogram->count ? (double)histogram->sum_ns / (double)histogram->count / 1e3 : 0.0,
            pbl_histogram_quantile_us(histogram, 0.5), pbl_histogram_quantile_us(histogram, 0.9),
            pbl_histogram_quantile_us(histogram, 0.99), pbl_histogram_quantile_us(histogram, 0.999),
            (double)histogram->max_ns / 1e3);
}
