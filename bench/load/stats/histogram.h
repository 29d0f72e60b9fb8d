/* Latency histogram: log-linear buckets, 128 per power of two, so a quantile is at most 0.8 % high.
 *
 * Values are nanoseconds from 0 to 2^40 (18 minutes); larger ones count as that. One thread.
 */
#ifndef PBL_HISTOGRAM_H
#define PBL_HISTOGRAM_H

#include <stdint.h>
#include <stdio.h>

enum { PBL_HISTOGRAM_SUB_BITS = 7, PBL_HISTOGRAM_MAX_BITS = 40 };

struct pbl_histogram {
    uint64_t count;
    uint64_t sum_ns;
    uint64_t max_ns;
    uint64_t buckets[(PBL_HISTOGRAM_MAX_BITS - PBL_HISTOGRAM_SUB_BITS + 1) << PBL_HISTOGRAM_SUB_BITS];
};

void pbl_histogram_record(struct pbl_histogram *histogram, uint64_t value_ns);

/* The upper edge, in microseconds, of the bucket that holds quantile `q` (0..1); 0 when nothing was recorded. */
double pbl_histogram_quantile_us(const struct pbl_histogram *histogram, double q);

/* Its buckets that hold anything, as a JSON array of pairs: number of the bucket, count. With 128 buckets per power of
 * two the numbers are those of an HdrHistogram with two significant digits. */
void pbl_histogram_print_buckets(FILE *out, const struct pbl_histogram *histogram);

/* Its mean, quantiles and maximum in microseconds, as a JSON object. */
void pbl_histogram_print(FILE *out, const struct pbl_histogram *histogram);

#endif
