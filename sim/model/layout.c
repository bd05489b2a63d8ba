#include "sim/model/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "sim/base/units.h"

const char *const sp_cp_sharding_names[] = {"even", "sequence", "document", "adaptive", NULL};

static const char *const axis_names[SP_AXES] = {"tp", "cp", "dp", "pp"};

static sp_status check_equal_shares(const sp_layout *layout, int layers, const char *source,
                                    sp_error *err);
static sp_status check_stage_layers(const sp_layout *layout, int layers, const char *source,
                                    sp_error *err);

int sp_stage_attending_layers(const sp_stage *stage, const sp_model *model)
{
    int layers = model->runs == 0 && model->mixer == SP_MIXER_ATTENTION ? stage->layers : 0;
    for (int k = 0; model->runs > 0 && k < model->kinds; k++) {
        layers += model->kind[k].mixer == SP_MIXER_ATTENTION ? stage->count[k] : 0;
    }
    return layers;
}

int64_t sp_layout_ranks(const sp_layout *layout)
{
    return (int64_t)layout->tp * layout->cp * layout->pp * layout->dp;
}

int sp_layout_zero_ranks(const sp_layout *layout)
{
    return layout->zero_group > 0 ? layout->zero_group : layout->dp * layout->cp;
}

int sp_layout_expert_replicas(const sp_layout *layout)
{
    int64_t ranks = (int64_t)layout->tp * layout->cp * layout->dp;
    return (int)(ranks / ((int64_t)sp_layout_etp(layout) * sp_layout_ep(layout)));
}

int sp_layout_expert_ranks(const sp_layout *layout)
{
    int64_t group = (int64_t)sp_layout_etp(layout) * sp_layout_ep(layout);
    return sp_layout_dispatches(layout)
               ? (int)(group / sp_gcd(group, (int64_t)layout->tp * layout->cp))
               : 1;
}

int sp_layout_zero_in_step(const sp_layout *layout)
{
    return layout->whole_in_step && layout->zero > 1 ? 1 : layout->zero;
}

bool sp_layout_shards_experts(const sp_layout *layout)
{
    return sp_layout_dispatches(layout) && sp_layout_zero_in_step(layout) >= 2;
}

int sp_layout_parameter_ranks(const sp_layout *layout)
{
    int group = sp_layout_zero_ranks(layout);
    if (sp_layout_zero_in_step(layout) < 3 || layout->lone_gathers) {
        return 1;
    }
    // Groups that overlap in a rank are one.
    if (sp_layout_stride(layout, SP_AXIS_DP) < sp_layout_stride(layout, SP_AXIS_CP)) {
        return layout->dp % group == 0 ? group : layout->dp;
    }
    return (int)(group / sp_gcd(group, layout->cp));
}

int sp_layout_round_ranks(const sp_layout *layout)
{
    int experts = sp_layout_expert_ranks(layout);
    int parameters = sp_layout_parameter_ranks(layout);
    return experts > parameters ? experts : parameters;
}

static sp_axis axis_at(const sp_rank_order *order, int place)
{
    return order->given ? order->axis[place] : (sp_axis)place;
}

int sp_layout_size(const sp_layout *layout, sp_axis axis)
{
    switch (axis) {
    case SP_AXIS_TP:
        return layout->tp;
    case SP_AXIS_CP:
        return layout->cp;
    case SP_AXIS_DP:
        return layout->dp;
    case SP_AXIS_PP:
        return layout->pp;
    case SP_AXES:
        break;
    }
    SP_UNREACHABLE("an axis");
}

int64_t sp_layout_stride(const sp_layout *layout, sp_axis axis)
{
    int64_t stride = 1;
    for (int place = 0; axis_at(&layout->order, place) != axis; place++) {
        stride *= sp_layout_size(layout, axis_at(&layout->order, place));
    }
    return stride;
}

void sp_layout_list_joint(const sp_layout *layout, int dp_first, int dp_count, int pp,
                          int64_t *ranks)
{
    int members = dp_count * layout->cp;
    for (int i = 0; i < layout->tp * members; i++) {
        int member = i % members;
        ranks[i] = i / members * sp_layout_stride(layout, SP_AXIS_TP) +
                   member % layout->cp * sp_layout_stride(layout, SP_AXIS_CP) +
                   (dp_first + member / layout->cp) * sp_layout_stride(layout, SP_AXIS_DP) +
                   pp * sp_layout_stride(layout, SP_AXIS_PP);
    }
    for (int tp = 0; tp < layout->tp; tp++) {
        qsort(&ranks[tp * members], (size_t)members, sizeof *ranks, sp_ascending_int64s);
    }
}

// The axis that a text begins with; SP_AXES: none, or Megatron's expert parallelism.
static int axis_named(const char *text)
{
    int axis = 0;
    while (axis < SP_AXES && strncmp(text, axis_names[axis], 2) != 0) {
        axis++;
    }
    return axis;
}

bool sp_rank_order_read(const char *text, sp_rank_order *order)
{
    unsigned seen = 0;
    int places = 0;
    sp_rank_order read = {.given = false};
    for (bool more = true; more; text += 3) {
        int axis = axis_named(text);
        if ((axis == SP_AXES && strncmp(text, "ep", 2) != 0) || (seen >> axis & 1u) != 0 ||
            (text[2] != '-' && text[2] != '\0')) {
            return false;
        }
        seen |= 1u << axis;
        if (axis < SP_AXES) {
            read.given = read.given || axis != places;
            read.axis[places++] = (sp_axis)axis;
        }
        more = text[2] == '-';
    }
    if (places == SP_AXES) {
        *order = read;
    }
    return places == SP_AXES;
}

void sp_rank_order_write(const sp_rank_order *order, char text[SP_RANK_ORDER_TEXT])
{
    snprintf(text, SP_RANK_ORDER_TEXT, "%s-%s-%s-%s", axis_names[axis_at(order, 0)],
             axis_names[axis_at(order, 1)], axis_names[axis_at(order, 2)],
             axis_names[axis_at(order, 3)]);
}

int sp_layout_vstages(const sp_layout *layout)
{
    return layout->pp * layout->chunks;
}

int sp_layout_vstage(const sp_layout *layout, int pp_rank, int chunk)
{
    SP_ASSERT(pp_rank >= 0 && pp_rank < layout->pp && chunk >= 0 && chunk < layout->chunks);
    if (layout->placement == SP_PLACE_V && chunk % 2 == 1) {
        return (chunk + 1) * layout->pp - 1 - pp_rank;
    }
    return chunk * layout->pp + pp_rank;
}

void sp_layout_locate(const sp_layout *layout, int vstage, int *pp_rank, int *chunk)
{
    SP_ASSERT(vstage >= 0 && vstage < sp_layout_vstages(layout));
    int offset = vstage % layout->pp;
    *chunk = vstage / layout->pp;
    bool backwards = layout->placement == SP_PLACE_V && *chunk % 2 == 1;
    *pp_rank = backwards ? layout->pp - 1 - offset : offset;
}

bool sp_layout_is_even(const sp_layout *layout)
{
    for (int s = 1; layout->stage_layers != NULL && s < sp_layout_vstages(layout); s++) {
        if (layout->stage_layers[s] != layout->stage_layers[0]) {
            return false;
        }
    }
    return true;
}

sp_status sp_layout_stages(const sp_layout *layout, const sp_model *model, const char *source,
                           sp_stage *stages, sp_error *err)
{
    int vstages = sp_layout_vstages(layout);
    int layers = model->layers;
    int first = 0;
    sp_status status = layout->stage_layers != NULL
                           ? check_stage_layers(layout, layers, source, err)
                           : check_equal_shares(layout, layers, source, err);
    if (status != SP_OK) {
        return status;
    }
    for (int s = 0; s < vstages; s++) {
        int pp_rank = 0;
        int chunk = 0;
        sp_layout_locate(layout, s, &pp_rank, &chunk);
        // Vocabulary parallelism: every pipeline rank does its share of the lookup with its first
        // chunk and of the logits with its last one (SlimPipe, arXiv 2504.14519).
        stages[s] = (sp_stage){
            .layers = layout->stage_layers != NULL ? layout->stage_layers[s] : layers / vstages,
            .first = first,
            .embedding = layout->vocab_parallel ? chunk == 0 : s == 0,
            .head = layout->vocab_parallel ? chunk == layout->chunks - 1 : s == vstages - 1,
        };
        stages[s].layers += s == vstages - 1 ? model->mtp_layers : 0;
        sp_model_count_kinds(model, first, stages[s].layers, stages[s].count);
        first += stages[s].layers;
    }
    return SP_OK;
}

// A layer is 1; the lookup of the embedding takes no time worth counting.
static double head_load(const sp_layout *layout, const sp_model *model)
{
    double head = (double)model->vocab * (double)model->hidden;
    double further = head + (double)sp_model_mtp_parameters(model);
    double layer = (double)sp_model_layer_parameters(model);
    return layout->vocab_parallel
               ? 0.0
               : (head + model->mtp_layers * further) / layer + model->mtp_layers;
}

void sp_layout_spread(const sp_layout *layout, const sp_model *model, int *stage_layers)
{
    int last = sp_layout_vstages(layout) - 1;
    double head = head_load(layout, model);
    memset(stage_layers, 0, ((size_t)last + 1) * sizeof *stage_layers);
    for (int layer = 0; layer < model->layers; layer++) {
        int least = last;
        double least_load = stage_layers[last] + head;
        for (int s = last - 1; s >= 0; s--) {
            if (stage_layers[s] < least_load) {
                least = s;
                least_load = stage_layers[s];
            }
        }
        stage_layers[least]++;
    }
}

void sp_layout_fill(const sp_layout *layout, const sp_model *model, int *stage_layers)
{
    int vstages = sp_layout_vstages(layout);
    double share = (model->layers + head_load(layout, model)) / vstages;
    int s = 0;
    memset(stage_layers, 0, (size_t)vstages * sizeof *stage_layers);
    for (int layer = 1; layer <= model->layers; layer++) {
        stage_layers[s]++;
        s += s + 1 < vstages && layer > share * (s + 1);
    }
}

// Beside the layers.
static double end_load(const sp_layout *layout, int vstage, double first, double last)
{
    return (vstage == 0 ? first : 0.0) + (vstage == sp_layout_vstages(layout) - 1 ? last : 0.0);
}

static double rank_load(const sp_layout *layout, int pp_rank, double first, double last,
                        const int *stage_layers)
{
    double load = 0.0;
    for (int c = 0; c < layout->chunks; c++) {
        int s = sp_layout_vstage(layout, pp_rank, c);
        load += stage_layers[s] + end_load(layout, s, first, last);
    }
    return load;
}

// The rank of least load behind `tried` (-1: of all), in the order in which they get layers; -1: no
// more.
static int next_rank(const sp_layout *layout, int tried, double first, double last,
                     const int *stage_layers)
{
    int next = -1;
    double least = 0.0;
    double bar = tried >= 0 ? rank_load(layout, tried, first, last, stage_layers) : 0.0;
    for (int r = layout->pp - 1; r >= 0; r--) {
        double load = rank_load(layout, r, first, last, stage_layers);
        bool behind = tried < 0 || load > bar || (load == bar && r < tried);
        if (behind && (next < 0 || load < least)) {
            next = r;
            least = load;
        }
    }
    return next;
}

static int least_chunk(const sp_layout *layout, int pp_rank, double first, double last,
                       const int *stage_layers)
{
    int least = sp_layout_vstage(layout, pp_rank, layout->chunks - 1);
    double least_load = stage_layers[least] + end_load(layout, least, first, last);
    for (int c = layout->chunks - 2; c >= 0; c--) {
        int s = sp_layout_vstage(layout, pp_rank, c);
        double load = stage_layers[s] + end_load(layout, s, first, last);
        if (load < least_load) {
            least = s;
            least_load = load;
        }
    }
    return least;
}

static bool place_layer(const sp_layout *layout, double first, double last, sp_layout_fits *fits,
                        void *context, int *stage_layers)
{
    int rank = -1;
    while ((rank = next_rank(layout, rank, first, last, stage_layers)) >= 0) {
        int at = least_chunk(layout, rank, first, last, stage_layers);
        stage_layers[at]++;
        if (fits == NULL || fits(context, rank, stage_layers)) {
            return true;
        }
        stage_layers[at]--;
    }
    return false;
}

bool sp_layout_level(const sp_layout *layout, int layers, double first, double last,
                     sp_layout_fits *fits, void *context, int *stage_layers)
{
    bool placed = true;
    memset(stage_layers, 0, (size_t)sp_layout_vstages(layout) * sizeof *stage_layers);
    for (int layer = 0; placed && layer < layers; layer++) {
        placed = place_layer(layout, first, last, fits, context, stage_layers);
    }
    return placed;
}

// ---- layers that differ ----

typedef struct leveller {
    const sp_layout *layout;
    const double *before; // [layers + 1]: the load of all layers before
    int layers;
    double first, last;
    sp_layout_fits *fits;
    void *context;
    int *stage_layers;
    double *load; // [pp], of level_of
} leveller;

// Of a rank with one chunk that holds layers [from, to).
static double range_load(const leveller *l, int rank, int from, int to)
{
    return l->before[to] - l->before[from] + end_load(l->layout, rank, l->first, l->last);
}

static bool range_fits(const leveller *l, int rank, int from, int to)
{
    if (l->fits == NULL) {
        return true;
    }
    memset(l->stage_layers, 0, (size_t)l->layout->pp * sizeof *l->stage_layers);
    l->stage_layers[0] = from;
    l->stage_layers[rank] = to - from;
    return l->fits(l->context, rank, l->stage_layers);
}

// The best way to cut the layers before each over the ranks up to each, by dynamic programming over
// ranks: by the largest load, or with a bar by the sum of squares of loads up to it. Infinite where
// there is none. from[rank * (layers + 1) + to]: where the rank's layers begin. A range that fits
// does so without a layer at either end too, so that the least begin only grows. An empty one may
// take more, since transients of no layers count as the first kind's, and is asked for apart.
static double cut_ranges(const leveller *l, double bar, double *best, int *from)
{
    size_t row = (size_t)l->layers + 1;
    bool squares = isfinite(bar);
    for (int r = 0; r < l->layout->pp; r++) {
        int fitting = 0;
        for (int to = 0; to <= l->layers; to++) {
            double least = (double)HUGE_VAL;
            int begin = 0;
            int end = r > 0 ? to : 0;
            while (fitting < to && fitting <= end && !range_fits(l, r, fitting, to)) {
                fitting++;
            }
            for (int at = fitting; at <= end; at++) {
                double load = range_load(l, r, at, to);
                double rest = r > 0 ? best[(size_t)(r - 1) * row + (size_t)at] : 0.0;
                double all = squares ? rest + load * load : fmax(rest, load);
                if (all < least && load <= bar && (at < to || range_fits(l, r, to, to))) {
                    least = all;
                    begin = at;
                }
            }
            best[(size_t)r * row + (size_t)to] = least;
            from[(size_t)r * row + (size_t)to] = begin;
        }
    }
    return best[(size_t)l->layout->pp * row - 1];
}

// Room for sums that differ in their last bits.
#define AS_MUCH (1.0 + 1e-9)

static bool level_ranges(const leveller *l)
{
    int pp = l->layout->pp;
    size_t row = (size_t)l->layers + 1;
    double *best = sp_calloc((size_t)pp * row, sizeof *best);
    int *from = sp_calloc((size_t)pp * row, sizeof *from);
    double bar = cut_ranges(l, (double)HUGE_VAL, best, from);
    bool found = isfinite(bar);
    if (found) {
        cut_ranges(l, bar * AS_MUCH, best, from);
        for (int r = pp - 1, to = l->layers; r >= 0; r--) {
            int begin = from[(size_t)r * row + (size_t)to];
            l->stage_layers[r] = to - begin;
            to = begin;
        }
    }
    sp_free(best);
    sp_free(from);
    return found;
}

typedef struct level {
    double most, squares; // the largest load of a rank, and the sum of squares of all
} level;

static level level_of(const leveller *l)
{
    const sp_layout *layout = l->layout;
    level found = {0};
    int begin = 0;
    memset(l->load, 0, (size_t)layout->pp * sizeof *l->load);
    for (int s = 0; s < sp_layout_vstages(layout); s++) {
        int pp_rank = 0;
        int chunk = 0;
        int end = begin + l->stage_layers[s];
        sp_layout_locate(layout, s, &pp_rank, &chunk);
        l->load[pp_rank] +=
            l->before[end] - l->before[begin] + end_load(layout, s, l->first, l->last);
        begin = end;
    }
    for (int r = 0; r < layout->pp; r++) {
        found.most = fmax(found.most, l->load[r]);
        found.squares += l->load[r] * l->load[r];
    }
    return found;
}

static bool is_more_level(level a, level b)
{
    return a.most * AS_MUCH < b.most || (a.most <= b.most && a.squares * AS_MUCH < b.squares);
}

// Where they are more than `most`, one more than that.
static int unfit_ranks(const leveller *l, int most)
{
    int count = 0;
    for (int r = 0; l->fits != NULL && r < l->layout->pp && count <= most; r++) {
        count += !l->fits(l->context, r, l->stage_layers);
    }
    return count;
}

// Layers between the two stages move along. The start knows nothing of memory: as long as moves let
// more ranks fit there are no others, and none later lets fewer fit. Later ones ask for memory only
// where they are more level, which few are. Where no rank fits none has room for another's layers.
static void move_layers(const leveller *l)
{
    int vstages = sp_layout_vstages(l->layout);
    level best = level_of(l);
    int unfit = unfit_ranks(l, l->layout->pp);
    bool levels = unfit == 0 || unfit == l->layout->pp;
    int since = 0;
    for (int i = 0; since < vstages * vstages; i = (i + 1) % (vstages * vstages)) {
        int *from = &l->stage_layers[i / vstages];
        int *to = &l->stage_layers[i % vstages];
        since++;
        if (from != to && *from > 0) {
            --*from;
            ++*to;
            level moved = level_of(l);
            bool more = levels && is_more_level(moved, best);
            int most = levels ? unfit : unfit - 1;
            int now = more || !levels ? unfit_ranks(l, most) : most + 1;
            if (now <= most) {
                best = moved;
                unfit = now;
                since = 0;
            } else {
                ++*from;
                --*to;
            }
        }
        if (!levels && (unfit == 0 || since == vstages * vstages)) {
            levels = true;
            since = 0;
        }
    }
}

bool sp_layout_level_unlike(const sp_layout *layout, const double *layer, int layers, double first,
                            double last, sp_layout_fits *fits, void *context, int *stage_layers)
{
    double *before = sp_calloc((size_t)layers + 1, sizeof *before);
    for (int i = 0; i < layers; i++) {
        before[i + 1] = before[i] + layer[i];
    }
    double *load = sp_calloc((size_t)layout->pp, sizeof *load);
    const leveller l = {layout, before, layers, first, last, fits, context, stage_layers, load};
    bool found = false;
    if (layout->chunks == 1) {
        found = level_ranges(&l);
    } else {
        double mean = before[layers] / layers;
        sp_layout_level(layout, layers, mean > 0.0 ? first / mean : 0.0,
                        mean > 0.0 ? last / mean : 0.0, NULL, NULL, stage_layers);
        move_layers(&l);
        found = unfit_ranks(&l, 0) == 0;
    }
    sp_free(load);
    sp_free(before);
    return found;
}

static sp_status check_equal_shares(const sp_layout *layout, int layers, const char *source,
                                    sp_error *err)
{
    if (layers % sp_layout_vstages(layout) == 0) {
        return SP_OK;
    }
    if (layers < sp_layout_vstages(layout)) {
        char stages[64];
        snprintf(stages, sizeof stages, layout->chunks == 1 ? "%d stages" : "%d x %d chunks",
                 layout->pp, layout->chunks);
        return sp_error_in(err, SP_ERR_CONTENT, source, "parallel.pp",
                           "%d layers are fewer than %s, of which each needs one", layers, stages);
    }
    if (layout->chunks == 1) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "parallel.pp",
                           "%d layers cannot be split into %d equal stages (parallel.stage_layers "
                           "\"auto\" spreads them)",
                           layers, layout->pp);
    }
    return sp_error_in(err, SP_ERR_CONTENT, source, "parallel.pp",
                       "%d layers cannot be split into %d x %d equal chunks (parallel.stage_layers "
                       "\"auto\" spreads them)",
                       layers, layout->pp, layout->chunks);
}

// A stage may hold no layer: embedding and head may stand for layers, as with Megatron-LM's
// account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split, and nanotron's
// last stages may only pass on.
static sp_status check_stage_layers(const sp_layout *layout, int layers, const char *source,
                                    sp_error *err)
{
    sp_status status = SP_OK;
    int64_t sum = 0;
    int last = sp_layout_vstages(layout) - 1;
    for (int s = 0; s <= last; s++) {
        if (layout->stage_layers[s] < 0) {
            char path[64];
            snprintf(path, sizeof path, "parallel.stage_layers[%d]", s);
            status = sp_error_in(err, SP_ERR_CONTENT, source, path,
                                 "expected at least 0 layers, got %d", layout->stage_layers[s]);
        }
        sum += layout->stage_layers[s];
    }
    if (status == SP_OK && sum != layers) {
        status = sp_error_in(err, SP_ERR_CONTENT, source, "parallel.stage_layers",
                             "add up to %lld layers, the model has %d", (long long)sum, layers);
    }
    return status;
}

// Limits that keep every product of degrees inside int (tp*cp*pp*dp inside int64_t).
enum { MAX_DEGREE = 1 << 20, MAX_RANKS = 1 << 24, MAX_CHUNKS = 4096 };

static bool check_degrees(const sp_layout *layout, const char *source, sp_error *err)
{
    const struct {
        const char *path;
        int value;
        int max;
    } degrees[] = {
        {"parallel.tp", layout->tp, MAX_DEGREE},
        {"parallel.cp", layout->cp, MAX_DEGREE},
        {"parallel.pp", layout->pp, MAX_DEGREE},
        {"parallel.dp", layout->dp, MAX_DEGREE},
        {"parallel.ep", layout->ep == 0 ? 1 : layout->ep, MAX_DEGREE},
        {"parallel.etp", layout->etp == 0 ? 1 : layout->etp, MAX_DEGREE},
        {"parallel.chunks_per_rank", layout->chunks, MAX_CHUNKS},
    };
    bool good = true;
    for (size_t i = 0; i < sizeof degrees / sizeof degrees[0]; i++) {
        if (degrees[i].value < 1 || degrees[i].value > degrees[i].max) {
            good = false;
            sp_error_in(err, SP_ERR_CONTENT, source, degrees[i].path,
                        "expected an integer from 1 to %d, got %d", degrees[i].max,
                        degrees[i].value);
        }
    }
    if (layout->zero < 0 || layout->zero > 3) {
        good = false;
        sp_error_in(err, SP_ERR_CONTENT, source, "parallel.zero",
                    "expected an integer from 0 to 3, got %d", layout->zero);
    }
    if (!good) {
        return false;
    }
    int64_t ranks = layout->tp;
    const int factors[] = {layout->cp, layout->pp, layout->dp};
    for (size_t i = 0; i < 3 && ranks <= MAX_RANKS; i++) {
        ranks *= factors[i];
    }
    if (ranks > MAX_RANKS) {
        sp_error_in(err, SP_ERR_CONTENT, source, "parallel", "tp*cp*pp*dp is above %d ranks",
                    MAX_RANKS);
        return false;
    }
    return true;
}

// The ranks that share experts count the ranks of a pipeline rank one after the other: these must
// lie next to each other, or a group within those of one data-parallel rank.
static bool groups_experts(const sp_layout *layout)
{
    int64_t block = (int64_t)layout->tp * layout->cp;
    bool next = layout->dp == 1 || sp_layout_stride(layout, SP_AXIS_DP) == block ||
                (int64_t)sp_layout_etp(layout) * sp_layout_ep(layout) == block;
    return (layout->tp == 1 || sp_layout_stride(layout, SP_AXIS_TP) == 1) &&
           (layout->cp == 1 || sp_layout_stride(layout, SP_AXIS_CP) == layout->tp) && next;
}

// As Megatron-LM's core/parallel_state.py: ETP*EP*PP divides all ranks, EP the experts.
static bool check_experts(const sp_layout *layout, const sp_model *model, const char *source,
                          sp_error *err)
{
    int ep = sp_layout_ep(layout);
    int etp = sp_layout_etp(layout);
    int64_t ranks = (int64_t)layout->tp * layout->cp * layout->dp;
    const char *key = ep > 1 ? "parallel.ep" : "parallel.etp";
    if (sp_model_most_experts(model) == 0) {
        sp_error_in(err, SP_ERR_CONTENT, source, key, "the model has no experts (model.experts)");
        return false;
    }
    bool good = true;
    for (int k = 0; k < sp_model_kinds(model); k++) {
        sp_model space;
        int experts = sp_model_of_kind(model, k, &space)->experts;
        if (experts % ep != 0) {
            good = false;
            sp_error_in(err, SP_ERR_CONTENT, source, "parallel.ep",
                        "%d experts cannot be spread over %d ranks", experts, ep);
        }
    }
    if (ranks % ((int64_t)etp * ep) != 0) {
        good = false;
        sp_error_in(err, SP_ERR_CONTENT, source, key,
                    "etp x ep, %d x %d, does not divide the %lld ranks of tp x cp x dp", etp, ep,
                    (long long)ranks);
    } else if (!groups_experts(layout)) {
        good = false;
        sp_error_in(err, SP_ERR_CONTENT, source, "parallel.order",
                    "experts over several ranks need \"tp-cp-dp-pp\", or \"tp-cp-pp-dp\" with etp "
                    "x ep = tp x cp");
    }
    if (layout->tp > 1 && !layout->sequence_parallel) {
        good = false;
        sp_error_in(err, SP_ERR_CONTENT, source, "parallel.sequence_parallel",
                    "tokens are dispatched from the sequence shards of the TP ranks, so that it "
                    "must be on with experts over several ranks (as in Megatron-LM)");
    }
    return good;
}

static bool check_split(const sp_layout *layout, const sp_model *model, const char *source,
                        sp_error *err)
{
    bool good = true;
    int tp = layout->tp;
    if (model->heads % tp != 0) {
        good = false;
        sp_error_in(err, SP_ERR_CONTENT, source, "parallel.tp",
                    "%d attention heads cannot be split over %d ranks", model->heads, tp);
    }
    // Fewer key and value heads than ranks: each is held by tp/kv_heads ranks.
    if (model->kv_heads % tp != 0 && tp % model->kv_heads != 0) {
        good = false;
        sp_error_in(err, SP_ERR_CONTENT, source, "parallel.tp",
                    "%d key and value heads cannot be split over %d ranks", model->kv_heads, tp);
    }
    if (model->state_heads % tp != 0 || model->state_groups % tp != 0) {
        good = false;
        sp_error_in(err, SP_ERR_CONTENT, source, "parallel.tp",
                    "%d heads of a state in %d groups cannot be split over %d ranks",
                    model->state_heads, model->state_groups, tp);
    }
    if (model->qk_norm_whole && tp > 1) {
        good = false;
        sp_error_in(err, SP_ERR_CONTENT, source, "parallel.tp",
                    "is %d, and norms over the heads of all ranks (model.qk_norm_whole) are "
                    "modelled on one alone",
                    tp);
    }
    for (int k = 0; k < sp_model_kinds(model); k++) {
        sp_model space;
        const sp_model *alike = sp_model_of_kind(model, k, &space);
        int ranks = alike->experts > 0 ? sp_layout_etp(layout) : tp;
        if (alike->shared_ffn % tp != 0) {
            good = false;
            sp_error_in(err, SP_ERR_CONTENT, source, "parallel.tp",
                        "a shared_ffn of %lld cannot be split over %d ranks",
                        (long long)alike->shared_ffn, tp);
        }
        if (alike->ffn % ranks != 0) {
            good = false;
            sp_error_in(err, SP_ERR_CONTENT, source, ranks != tp ? "parallel.etp" : "parallel.tp",
                        "an ffn of %lld cannot be split over %d ranks", (long long)alike->ffn,
                        ranks);
        }
    }
    good = (!sp_layout_dispatches(layout) || check_experts(layout, model, source, err)) && good;
    if (model->mtp_layers > 0 && layout->vocab_parallel) {
        good = false;
        sp_error_in(err, SP_ERR_CONTENT, source, "parallel.vocab_parallel",
                    "layers that predict further tokens (model.mtp_layers) have their heads on the "
                    "last stage alone: expected false");
    }
    if (layout->placement == SP_PLACE_V && layout->chunks != 2) {
        good = false;
        sp_error_in(err, SP_ERR_CONTENT, source, "parallel.chunks_per_rank",
                    "the V placement has 2 chunks per rank, got %d", layout->chunks);
    }
    return good;
}

sp_status sp_layout_check(const sp_layout *layout, const sp_model *model, const char *source,
                          sp_error *err)
{
    if (!check_degrees(layout, source, err)) {
        return SP_ERR_CONTENT;
    }
    return check_split(layout, model, source, err) ? SP_OK : SP_ERR_CONTENT;
}
