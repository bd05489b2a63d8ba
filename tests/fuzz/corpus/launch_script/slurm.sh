#SBATCH --nodes=4 --gres=gpu:h100:8
N=${SLURM_NNODES:-1}
torchrun --nproc_per_node $SLURM_GPUS_ON_NODE \
 --nnodes $((SLURM_JOB_NUM_NODES * 1)) p.py --num-layers 2 --bf16
