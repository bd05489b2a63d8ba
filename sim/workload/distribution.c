#include "sim/workload/distribution.h"

#include <math.h>

#include "sim/base/json.h"
#include "sim/base/status.h"

// Two points of equal quantile are a jump, two of equal length a mass on that length. A length is
// the interpolated value rounded up, so that a piece from a to b gives a + 1 to b.

// 1,000,000 documents. Quantiles of the list; the two points above the 0.99999 quantile and the
// mass on the longest document are set so that documents above 262,144 tokens keep their share of
// documents (7 in a million), of tokens (0.364 %) and of squared tokens (27.6 %): one logarithmic
// piece up to the maximum would double the last.
static const double wikipedia_quantile[] = {
    0,    .005,  .01,   .02,   .05,    .1,     .15,     .2,      .25,     .3,    .35,
    .4,   .45,   .5,    .55,   .6,     .65,    .7,      .75,     .8,      .85,   .9,
    .925, .95,   .96,   .97,   .98,    .985,   .99,     .9925,   .995,    .9975, .998,
    .999, .9995, .9998, .9999, .99995, .99999, .999993, .999999, .999999, 1,
};
static const double wikipedia_tokens[] = {
    1,     31,    39,    48,     67,     87,     103,    122,    146,     171,     205,
    243,   290,   347,   411,    472,    556,    685,    862,    1092,    1464,    2112,
    2705,  3721,  4392,  5391,   7088,   8537,   10921,  12783,  15987,   23492,   26515,
    37367, 51517, 75451, 102060, 130879, 235328, 262144, 367000, 1823777, 1823777,
};

// Documents up to each length, of 13,463,214.
#define LONGMIX(documents) ((documents) / 13463214.0)
static const double longmix_quantile[] = {
    0,
    LONGMIX(30254),
    LONGMIX(421442),
    LONGMIX(1121038),
    LONGMIX(2498795),
    LONGMIX(6293530),
    LONGMIX(9610315),
    LONGMIX(11716881),
    LONGMIX(12705406),
    LONGMIX(13115408),
    LONGMIX(13288982),
    LONGMIX(13403989),
    LONGMIX(13422417),
    LONGMIX(13444930),
    1,
};
static const double longmix_tokens[] = {
    1, 10, 50, 100, 200, 500, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 196608,
};

// 77,932 documents. Quantiles of the list and, at powers of two, the shares of documents per bin
// summed from the longest down, because there they are known to the most digits. The point at
// 11,585 (8,192 times the square root of 2) is none of them: it gives the bin from 8K to 16K its
// published 15.10 % of the tokens, where a single piece would hold 16.
static const double prolong_quantile[] = {
    0,   .01,    .05, .1,      .149747, .25,     .5,   .533847, .75,     .803347, .9,      .947447,
    .95, .97937, .99, .990147, .995,    .997937, .999, .999397, .999782, .9999,   .999949, 1,
};
static const double prolong_tokens[] = {
    575,  678,   801,   919,   1024,  1237,  1914,  2048,  3467,   4096,   6051,   8192,
    8379, 11585, 16273, 16384, 21393, 32768, 47500, 65536, 131072, 240055, 262144, 340149,
};

// 16,279,552 sequences of 255.83 tokens on the mean, in bins of 64. Inside a bin lengths are spread
// evenly over the lower and over the upper half; how many stand in the lower one follows from the
// bin's share of the tokens, that is, from the bin's mean.
#define BERT_MEAN 255.83
#define BERT_LOWER(sequences, tokens, upper_half_mean) \
    (((sequences) * (upper_half_mean) - (tokens)*BERT_MEAN) / 32)
static const double bert512_quantile[] = {
    0,     BERT_LOWER(.1759, .0303, 48.5),
    .1759, .1759 + BERT_LOWER(.1935, .0702, 112.5),
    .3694, .3694 + BERT_LOWER(.1140, .0706, 176.5),
    .4834, .4834 + BERT_LOWER(.0829, .0723, 240.5),
    .5663, .5663 + BERT_LOWER(.0645, .0725, 304.5),
    .6308, .6308 + BERT_LOWER(.0528, .0725, 368.5),
    .6836, .6836 + BERT_LOWER(.0444, .0721, 432.5),
    .7280, .7657,
    .7657, 1,
};
static const double bert512_tokens[] = {
    0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448, 511, 512, 512,
};

// exp(N(mu, 1.5)) with mu = ln 1024 - 1.5^2 / 2, clipped to 128 and 8192: 26.2 % of the samples lie
// on the lower end and 1.6 % on the upper one. Between them 16 steps of a factor of 64^(1/16).
static const double lognormal_quantile[] = {
    0,         0.2622923, 0.3216795, 0.3860149, 0.4536543, 0.5226688, 0.5910084,
    0.6566827, 0.7179334, 0.7733726, 0.8220711, 0.8635861, 0.8979328, 0.9255105,
    0.9469997, 0.9632506, 0.9751774, 0.9836723, 1,
};
static const double lognormal_tokens[] = {
    128,     128,     166.00,  215.27,  279.17,  362.04,  469.51,  608.87, 789.61, 1024,
    1327.96, 1722.16, 2233.36, 2896.31, 3756.05, 4870.99, 6316.90, 8192,   8192,
};

// 98 % evenly up to 6,300 tokens and 0.53 % between 64K and 128K, as published; between them twelve
// steps of equal factors, which bring the mean within 0.5 % of the list's 3,962 tokens.
static const double wlb_quantile[] = {
    0,        0.98,   0.981225, 0.98245, 0.983675, 0.9849, 0.986125, 0.98735,
    0.988575, 0.9898, 0.991025, 0.99225, 0.993475, 0.9947, 1,
};
static const double wlb_tokens[] = {
    0,     6300,  7658,  9308,  11314, 13753, 16717,  20319,
    24699, 30022, 36492, 44356, 53916, 65536, 131072,
};

_Static_assert(sizeof wikipedia_tokens == sizeof wikipedia_quantile, "one length per quantile");
_Static_assert(sizeof longmix_tokens == sizeof longmix_quantile, "one length per quantile");
_Static_assert(sizeof prolong_tokens == sizeof prolong_quantile, "one length per quantile");
_Static_assert(sizeof bert512_tokens == sizeof bert512_quantile, "one length per quantile");
_Static_assert(sizeof wlb_tokens == sizeof wlb_quantile, "one length per quantile");
_Static_assert(sizeof lognormal_tokens == sizeof lognormal_quantile, "one length per quantile");

#define TABLE(name_)                                        \
    .quantile = name_##_quantile, .tokens = name_##_tokens, \
    .points = sizeof name_##_quantile / sizeof name_##_quantile[0]

static const sp_distribution distributions[] = {
    {
        .name = "wikipedia",
        .title = "Wikipedia articles, mean 1,014 tokens, 1.6 % above 8K, longest 1.8M",
        .source = "FlexSP (ASPLOS'25, arXiv 2412.01523), PKU-DAIR/Hetu-Galvatron "
                  "galvatron/datasets/wikipedia.txt, 1,000,000 documents",
        TABLE(wikipedia),
    },
    {
        .name = "longmix",
        .title = "a mix with long documents, mean 1.75K, a quarter of its tokens above 32K",
        .source = "MagiAttention, SandAI-org/MagiAttention exps/dist_attn/benchmark/datasets/"
                  "default/doc_length_distribution.csv, 13,463,214 documents",
        TABLE(longmix),
    },
    {
        .name = "prolong",
        .title = "ProLong documents before up-sampling, mean 3,052 tokens, longest 340K",
        .source = "DistCA, hao-ai-lab/DistCA distca/simulator/data/dist_prolong.json, 77,932 "
                  "documents",
        TABLE(prolong),
    },
    {
        .name = "bert512",
        .title = "BERT pre-training pieces of Wikipedia, at most 512 tokens, 23 % of them full",
        .source = "packedBERT (arXiv 2107.02027), graphcore/examples "
                  "tutorials/blogs_code/packedBERT/histograms.py, 16,279,552 sequences",
        TABLE(bert512),
        .linear = 1,
    },
    {
        .name = "lognormal",
        .title = "made up: lognormal of mean 1,024 and sigma 1.5, clipped to 128 and 8,192 tokens",
        .source = "Megatron-LM, examples/dynamic_context_parallel, mock data set",
        TABLE(lognormal),
    },
    {
        .name = "wlb-llm",
        .title = "WLB-LLM's documents as digitised from its figure, mean 3,962 tokens, to 128K",
        .source = "DistCA, hao-ai-lab/DistCA distca/simulator/data/dist_wlbllm.json, 99,519 "
                  "documents",
        TABLE(wlb),
        .linear = 1,
    },
};

int sp_distribution_count(void)
{
    return (int)(sizeof distributions / sizeof distributions[0]);
}

const sp_distribution *sp_distribution_at(int index)
{
    SP_ASSERT(index >= 0 && index < sp_distribution_count());
    return &distributions[index];
}

const sp_distribution *sp_distribution_find(const char *name)
{
    for (int i = 0; i < sp_distribution_count(); i++) {
        if (sp_same_name(distributions[i].name, name)) {
            return &distributions[i];
        }
    }
    return NULL;
}

static double interpolate(const sp_distribution *distribution, int piece, double u)
{
    double begin = distribution->quantile[piece];
    double a = distribution->tokens[piece];
    double b = distribution->tokens[piece + 1];
    double part = (u - begin) / (distribution->quantile[piece + 1] - begin);
    // Also where no logarithm can be taken, and where rounding might leave the point by a token.
    if (part <= 0 || a == b) {
        return a;
    }
    double value = distribution->linear ? a + part * (b - a) : a * exp(part * log(b / a));
    return value < b ? value : b;
}

int64_t sp_distribution_quantile(const sp_distribution *distribution, double u)
{
    // The last point at or below u, so that a jump has been taken at its quantile.
    int low = 0;
    int high = distribution->points - 1;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (distribution->quantile[middle] <= u) {
            low = middle;
        } else {
            high = middle;
        }
    }
    double tokens = ceil(interpolate(distribution, low, u));
    return tokens < 1 ? 1 : (int64_t)tokens;
}

int64_t sp_distribution_sample(const sp_distribution *distribution, sp_prng *prng)
{
    return sp_distribution_quantile(distribution, sp_prng_uniform(prng));
}
