// The built-in distributions against the tables they come from. Sums are over a fine grid of the
// inverse CDF, so that no sampling noise stands between the two.
#include "sim/workload/distribution.h"
#include "tests/support/test_main.h"

enum { GRID = 2000000, BINS = 20 };

typedef struct bin_share {
    int64_t upto;
    double documents; // per cent, as below
    double tokens;
    double squares; // negative: not published
} bin_share;

typedef struct grid_sums {
    double mean, token_weighted_mean, documents[BINS], tokens[BINS], squares[BINS];
} grid_sums;

static const sp_distribution *find(const char *name)
{
    const sp_distribution *distribution = sp_distribution_find(name);
    assert_non_null(distribution);
    return distribution;
}

static void sum_grid(const char *name, const bin_share *bins, int count, grid_sums *sums)
{
    const sp_distribution *distribution = find(name);
    double tokens = 0, squares = 0;
    *sums = (grid_sums){0};
    for (int i = 0; i < GRID; i++) {
        int64_t length = sp_distribution_quantile(distribution, (i + .5) / GRID);
        double value = (double)length;
        int bin = 0;
        while (bins[bin].upto < length) {
            bin++;
            assert_true(bin < count);
        }
        tokens += value;
        squares += value * value;
        sums->documents[bin] += 1;
        sums->tokens[bin] += value;
        sums->squares[bin] += value * value;
    }
    sums->mean = tokens / GRID;
    sums->token_weighted_mean = squares / tokens;
    for (int i = 0; i < count; i++) {
        sums->documents[i] *= 100. / GRID;
        sums->tokens[i] *= 100 / tokens;
        sums->squares[i] *= 100 / squares;
    }
}

// Tolerances in percentage points.
static void assert_shares(const bin_share *bins, int count, const grid_sums *sums,
                          double documents_tolerance, double tokens_tolerance,
                          double squares_tolerance)
{
    for (int i = 0; i < count; i++) {
        assert_within(sums->documents[i], bins[i].documents, documents_tolerance);
        assert_within(sums->tokens[i], bins[i].tokens, tokens_tolerance);
        if (bins[i].squares >= 0) {
            assert_within(sums->squares[i], bins[i].squares, squares_tolerance);
        }
    }
}

// PKU-DAIR/Hetu-Galvatron galvatron/datasets/wikipedia.txt, the shares of the whole list.
TEST(wikipedia_has_the_lists_shares)
{
    static const bin_share bins[] = {
        {128, 21.445, 1.827, .012},       {256, 20.205, 3.696, .051},
        {512, 21.036, 7.808, .217},       {1024, 16.123, 11.577, .623},
        {2048, 10.838, 15.374, 1.632},    {4096, 5.958, 16.730, 3.516},
        {8192, 2.796, 15.523, 6.451},     {16384, 1.122, 12.340, 10.150},
        {32768, .3465, 7.571, 12.383},    {65536, .1027, 4.470, 14.573},
        {131072, .0228, 1.967, 12.713},   {262144, .0042, .753, 10.039},
        {INT64_MAX, .0007, .364, 27.642},
    };
    enum { COUNT = sizeof bins / sizeof bins[0] };
    grid_sums sums;
    sum_grid("wikipedia", bins, COUNT, &sums);
    assert_within(sums.mean, 1013.6, .01 * 1013.6);
    assert_within(sums.token_weighted_mean, 14088, .03 * 14088);
    assert_shares(bins, COUNT, &sums, .15, .25, 1.5);
    const struct {
        double quantile;
        int64_t length;
    } published[] = {{0, 1},      {.1, 87},      {.25, 146},   {.5, 347},       {.75, 862},
                     {.9, 2112},  {.95, 3721},   {.99, 10921}, {.999, 37367},   {.9999, 102060},
                     {.98, 7088}, {.995, 15987}, {.05, 67},    {.99999, 235328}};
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        assert_int_equal(sp_distribution_quantile(find("wikipedia"), published[i].quantile),
                         published[i].length);
    }
    assert_int_equal(sp_distribution_quantile(find("wikipedia"), nextafter(1, 0)), 1823777);
}

// SandAI-org/MagiAttention doc_length_distribution.csv: documents per range. Shares of tokens
// depend on the law inside a bin; the table's own estimate of the mean is 1.72K to 1.78K, and a
// quarter (25.5 %) of the tokens above 32K.
TEST(longmix_has_the_tables_counts)
{
    static const struct {
        int64_t upto;
        double documents;
    } table[] = {{10, 30254},     {50, 391188},    {100, 699596},   {200, 1377757}, {500, 3794735},
                 {1024, 3316785}, {2048, 2106566}, {4096, 988525},  {8192, 410002}, {16384, 173574},
                 {32768, 115007}, {65536, 18428},  {131072, 22513}, {196608, 18284}};
    enum { COUNT = sizeof table / sizeof table[0] };
    bin_share bins[COUNT] = {0};
    double documents = 0;
    for (int i = 0; i < COUNT; i++) {
        bins[i].upto = table[i].upto;
        documents += table[i].documents;
    }
    grid_sums sums;
    sum_grid("longmix", bins, COUNT, &sums);
    for (int i = 0; i < COUNT; i++) {
        assert_within(sums.documents[i], 100 * table[i].documents / documents, 1e-3);
    }
    assert_within(sums.mean, 1750, 40);
    assert_within(sums.tokens[11] + sums.tokens[12] + sums.tokens[13], 25.5, .5);
    assert_within(sums.squares[11] + sums.squares[12] + sums.squares[13], 85, 1.5);
}

// hao-ai-lab/DistCA dist_prolong.json.
TEST(prolong_has_the_lists_shares_and_quantiles)
{
    static const bin_share bins[] = {
        {512, 0, 0, 0},
        {1024, 14.97, 4.18, .31},
        {2048, 38.41, 18.55, 2.43},
        {4096, 26.95, 25.38, 6.50},
        {8192, 14.41, 26.48, 13.22},
        {16384, 4.27, 15.10, 14.47},
        {32768, .779, 5.44, 10.35},
        {65536, .146, 2.07, 7.92},
        {131072, .0385, 1.15, 9.38},
        {262144, .0167, 1.10, 19.78},
        {INT64_MAX, .0051, .55, 15.64},
    };
    enum { COUNT = sizeof bins / sizeof bins[0] };
    grid_sums sums;
    sum_grid("prolong", bins, COUNT, &sums);
    assert_within(sums.mean, 3052, .015 * 3052);
    assert_within(sums.token_weighted_mean, 11681, .03 * 11681);
    // The published shares of documents add up to 99.995 %.
    assert_shares(bins, COUNT, &sums, .006, .25, 3);
    const struct {
        double quantile;
        int64_t length;
    } published[] = {{0, 575},      {.01, 678},    {.05, 801},     {.1, 919},   {.25, 1237},
                     {.5, 1914},    {.75, 3467},   {.9, 6051},     {.95, 8379}, {.99, 16273},
                     {.995, 21393}, {.999, 47500}, {.9999, 240055}};
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        assert_int_equal(sp_distribution_quantile(find("prolong"), published[i].quantile),
                         published[i].length);
    }
    assert_int_equal(sp_distribution_quantile(find("prolong"), nextafter(1, 0)), 340149);
}

// graphcore/examples packedBERT histograms.py: 16,279,552 sequences, 4.1648e9 tokens; without
// packing 49.97 % of the 512 places are used, and at most a 2.0013-fold speed-up is left.
TEST(bert512_has_the_histograms_shares)
{
    static const bin_share bins[] = {
        {64, 17.59, 3.03, -1}, {128, 19.35, 7.02, -1}, {192, 11.40, 7.06, -1},
        {256, 8.29, 7.23, -1}, {320, 6.45, 7.25, -1},  {384, 5.28, 7.25, -1},
        {448, 4.44, 7.21, -1}, {511, 3.77, -1, -1},    {512, 23.43, -1, -1},
    };
    enum { COUNT = sizeof bins / sizeof bins[0] };
    grid_sums sums;
    sum_grid("bert512", bins, COUNT, &sums);
    for (int i = 0; i < COUNT; i++) {
        assert_within(sums.documents[i], bins[i].documents, .001);
        if (bins[i].tokens >= 0) {
            assert_within(sums.tokens[i], bins[i].tokens, .01);
        }
    }
    assert_within(sums.tokens[7] + sums.tokens[8], 53.96, .05);
    assert_within(sums.mean, 255.83, .1);
    assert_within(sums.mean / 512, .4997, .0002);
    assert_int_equal(sp_distribution_quantile(find("bert512"), 0), 1);
    // The jump: 23.43 % are exactly 512, what stands just below them is shorter.
    assert_int_equal(sp_distribution_quantile(find("bert512"), 1 - .2343), 512);
    assert_int_equal(sp_distribution_quantile(find("bert512"), 1 - .2344), 511);
}

static double normal_cdf(double z)
{
    return 0.5 * erfc(-z / sqrt(2.0));
}

// The closed form: shares below a length by the normal distribution of its logarithm, and the mean
// of what is clipped, a P(a) + b (1 - P(b)) + m (P'(b) - P'(a)), where P is the share below a
// length and P' that of a normal distribution shifted by sigma.
TEST(lognormal_as_its_closed_form)
{
    static const int64_t lengths[] = {129, 200, 332, 500, 1024, 3000, 8191};
    const double mu = log(1024.0) - 1.125;
    const double low = (log(128.0) - mu) / 1.5;
    const double high = (log(8192.0) - mu) / 1.5;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        double below = normal_cdf((log((double)lengths[i]) - mu) / 1.5);
        // Points are a factor of 1.3 apart: between them the length is within 2 %.
        double found = (double)sp_distribution_quantile(find("lognormal"), below);
        assert_within(found / (double)lengths[i], 1.0, 0.02);
    }
    double mean = 0.0;
    for (int i = 0; i < GRID; i++) {
        mean += (double)sp_distribution_quantile(find("lognormal"), (i + .5) / GRID) / GRID;
    }
    double expected = 128.0 * normal_cdf(low) + 8192.0 * (1.0 - normal_cdf(high)) +
                      1024.0 * (normal_cdf(high - 1.5) - normal_cdf(low - 1.5));
    assert_within(mean / expected, 1.0, 0.005);
    assert_int_equal(sp_distribution_quantile(find("lognormal"), 0), 128);
    assert_int_equal(sp_distribution_quantile(find("lognormal"), nextafter(1, 0)), 8192);
}

// WLB-LLM's figure as hao-ai-lab/DistCA has digitised it (dist_wlbllm.json): 98 % of the documents
// have up to 6,300 tokens and .53 % from 64K on, none more than 128K; the mean is 3,962.
TEST(wlb_llm_has_the_lists_shares)
{
    static const bin_share bins[] = {
        {6300, 98, -1, -1}, {65536, 1.47, -1, -1}, {131072, .53, -1, -1}};
    grid_sums sums;
    sum_grid("wlb-llm", bins, 3, &sums);
    for (int i = 0; i < 3; i++) {
        assert_within(sums.documents[i], bins[i].documents, .01);
    }
    assert_within(sums.mean, 3962, .005 * 3962);
    assert_int_equal(sp_distribution_quantile(find("wlb-llm"), nextafter(1, 0)), 131072);
}

TEST(points_are_well_formed)
{
    assert_int_equal(sp_distribution_count(), 6);
    for (int d = 0; d < sp_distribution_count(); d++) {
        const sp_distribution *distribution = sp_distribution_at(d);
        assert_ptr_equal(sp_distribution_find(distribution->name), distribution);
        assert_true(strlen(distribution->title) > 0 && strlen(distribution->title) < 80);
        assert_true(strlen(distribution->source) > 0);
        int last = distribution->points - 1;
        assert_true(last >= 1);
        assert_true(distribution->quantile[0] <= 0 && distribution->quantile[last] >= 1);
        for (int i = 0; i < last; i++) {
            assert_true(distribution->quantile[i] <= distribution->quantile[i + 1]);
            assert_true(distribution->tokens[i] <= distribution->tokens[i + 1]);
        }
    }
    assert_null(sp_distribution_find("wikipedias"));
}

TEST(quantiles_never_fall)
{
    for (int d = 0; d < sp_distribution_count(); d++) {
        const sp_distribution *distribution = sp_distribution_at(d);
        int64_t previous = 1;
        for (int i = 0; i < 100000; i++) {
            int64_t length = sp_distribution_quantile(distribution, i / 100000.);
            assert_true(length >= previous);
            previous = length;
        }
    }
}

// Kolmogorov-Smirnov: the empirical CDF of n samples stays within 1.95/sqrt(n) of the CDF with
// probability 0.999; the seed is fixed, so that it either always does or never.
TEST(samples_follow_the_quantiles)
{
    enum { SAMPLES = 200000 };
    for (int d = 0; d < sp_distribution_count(); d++) {
        const sp_distribution *distribution = sp_distribution_at(d);
        for (int q = 1; q < 20; q++) {
            int64_t length = sp_distribution_quantile(distribution, q / 20.);
            sp_prng prng = prng_seeded(3);
            int below = 0, upto = 0;
            for (int i = 0; i < SAMPLES; i++) {
                int64_t sample = sp_distribution_sample(distribution, &prng);
                below += sample < length;
                upto += sample <= length;
            }
            double slack = 1.95 * sqrt(SAMPLES);
            assert_true(below <= SAMPLES * q / 20. + slack && upto >= SAMPLES * q / 20. - slack);
        }
    }
}
