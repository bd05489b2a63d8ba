/* Messages between pipeline ranks that are processes (backends/cuda/nccl.c), for the model checker spin
   (check_channels.sh). P stages execute M packs by 1F1B, each on a GPU with room for SLOTS kernels. Work of a
   rank's own stream is done in the order of its actions. Before an action the receives of what it and the
   next one read are put, behind the work so far (backends/executor/p2p.c); a send is put behind the action
   that gives it. A channel is for one direction of two ranks. Its messages go in order, each by a kernel on
   either GPU; a kernel keeps its room until the other is there, too.

   SWAPPED: the first rank has another plan than the others, whose first two forwards are exchanged.
   TURNS: communicators of a GPU take turns, as with NCCL_COMM_SPLIT_SHARE_RESOURCES=1, in the order in which
   their messages were put. */

#ifndef P
#define P 3
#endif
#ifndef M
#define M 3
#endif
#ifndef SLOTS
#define SLOTS 5 /* one for each channel of a rank, and one for its own work */
#endif
#ifndef SWAPPED
#define SWAPPED 0
#endif
#ifndef TURNS
#define TURNS 0
#endif

#define CHANNELS 2 * P
#define ACTIONS 2 * M

/* The plan: actions of all ranks, one rank after the other. */
bool backward[P * ACTIONS];
byte pack[P * ACTIONS];

byte room[P] = SLOTS;
/* Channel 2 r goes from rank r to the next, 2 r + 1 back. How many of its messages were put at either end
   and are over, and the packs that they are of. */
byte sends[CHANNELS];
byte receives[CHANNELS];
byte over[CHANNELS];
byte sent[CHANNELS * M];
byte expected[CHANNELS * M];
/* Channels of a GPU in the order in which their messages were put. */
chan turns[P] = [8 * M] of { byte };

#define READS_FROM(r, a) (backward[a] -> 2 * r + 1 : 2 * r - 2)
#define SENDS_TO(r, a) (backward[a] -> 2 * r - 1 : 2 * r)
#define READS(r, a) (backward[a] -> r < P - 1 : r > 0)
#define SENDS(r, a) (backward[a] -> r > 0 : r < P - 1)

inline put_receive(r, a)
{
    if
    :: READS(r, a) ->
        c = READS_FROM(r, a);
        if
        :: receives[c] <= pack[a] ->
            expected[c * M + receives[c]] = pack[a];
            receives[c]++;
            turns[r]!c
        :: else
        fi
    :: else
    fi
}

proctype stage(byte r)
{
    byte c;
    byte a = r * ACTIONS;
    do
    :: a < r * ACTIONS + ACTIONS ->
        atomic {
            put_receive(r, a);
            if
            :: a + 1 < r * ACTIONS + ACTIONS -> put_receive(r, a + 1)
            :: else
            fi
        }
        (!READS(r, a) || over[READS_FROM(r, a)] > pack[a]);
        atomic { room[r] > 0 -> room[r]-- }
        atomic {
            room[r]++;
            if
            :: SENDS(r, a) ->
                c = SENDS_TO(r, a);
                sent[c * M + sends[c]] = pack[a];
                sends[c]++;
                turns[r]!c
            :: else
            fi;
            a++
        }
    :: else -> break
    od
}

/* The kernels of a channel at both ends. */
proctype link(byte c, from, to)
{
    bool sending, receiving;
    do
    :: atomic {
        !sending && sends[c] > over[c] && room[from] > 0 && (!TURNS || turns[from]?[eval(c)]) ->
            room[from]--;
            sending = true
    }
    :: atomic {
        !receiving && receives[c] > over[c] && room[to] > 0 && (!TURNS || turns[to]?[eval(c)]) ->
            room[to]--;
            receiving = true
    }
    :: atomic {
        sending && receiving ->
            assert(sent[c * M + over[c]] == expected[c * M + over[c]]);
            turns[from]??eval(c);
            turns[to]??eval(c);
            over[c]++;
            room[from]++;
            room[to]++;
            sending = false;
            receiving = false
    }
    :: over[c] == M -> break
    od
}

/* Narayanan et al., 2021, "Efficient Large-Scale Language Model Training on GPU Clusters", section 2.2.1: a
   rank has as many forwards ahead as ranks follow. */
init {
    byte r, i, ahead, forwards, backwards;
    atomic {
        for (r : 0 .. P - 1) {
            ahead = (P - 1 - r < M -> P - 1 - r : M);
            forwards = 0;
            backwards = 0;
            for (i : 0 .. ACTIONS - 1) {
                backward[r * ACTIONS + i] = (forwards == M || forwards > ahead + backwards);
                if
                :: backward[r * ACTIONS + i] -> pack[r * ACTIONS + i] = backwards; backwards++
                :: else -> pack[r * ACTIONS + i] = forwards; forwards++
                fi
            }
        }
        if
        :: SWAPPED -> pack[0] = 1; pack[1] = 0
        :: else
        fi;
        for (r : 0 .. P - 1) {
            run stage(r);
            if
            :: r < P - 1 -> run link(2 * r, r, r + 1); run link(2 * r + 1, r + 1, r)
            :: else
            fi
        }
    }
}
