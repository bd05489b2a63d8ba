#!/bin/sh
#SBATCH --nodes=2
run() { if [ "$1" ]; then TP=${2:-8}; fi; export PP=$((4 / 2)); }
cat <<EOF > x
$A
EOF
cmd='python -m torch.distributed.run --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --moe-layer-freq ([0]+[1]*3)*1 --num-experts 4'
A+=(--bf16 "${A[@]}") && bash -c "$cmd --pipeline-model-parallel-layout Et|(t|)*2tL --tensor-model-parallel-size $TP" > log 2>&1
