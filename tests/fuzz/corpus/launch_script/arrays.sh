#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
# a run
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-4}
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
TP=${TP:-4}
PP=2
CHECKPOINT_PATH=$1
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES
    --master_addr $MASTER_ADDR
)
GPT_MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096  # eight
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length 8192
    --max-position-embeddings 8192
    --position-embedding-type rope
    --normalization RMSNorm --swiglu --disable-bias-linear
    --untie-embeddings-and-output-weights
    --attention-dropout 0 --hidden-dropout 0.0
    --vocab-size 128256
)
TRAINING_ARGS="
    --micro-batch-size 1 \
    --global-batch-size $((WORLD_SIZE*4)) \
    --bf16 --lr 6e-5 --clip-grad 1.0
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
    --recompute-granularity selective
    --tensor-modle-parallel-size 4
    --enable-cuda-graph
"
PARALLEL="--tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP}"
PARALLEL+=" --sequence-parallel --context-parallel-size 2"
if [ -n "$X" ]; then
  EXTRA="--tp-comm-overlap"
fi
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${GPT_MODEL_ARGS[@]} $TRAINING_ARGS ${PARALLEL} $EXTRA $OTHER \
    --save "$CHECKPOINT_PATH" --data-path "$DATA" 2>&1 | tee log.txt
