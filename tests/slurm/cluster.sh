# A Slurm of two nodes on this machine, in namespaces of its own, its files in the folder $1:
#   unshare --net --mount --propagation private --pid --fork --kill-child bash cluster.sh FOLDER
# It says the process id by which nsenter(1) gets in, and runs until it is killed, with all of it.
set -euo pipefail
folder=$1
read -r pid _ </proc/self/stat # by the outer /proc, which is still there
echo "$pid"
mount -t proc proc /proc

# The nodes need names, and their names an address that is not the loopback's.
name=$(hostname)
printf '127.0.0.1 localhost\n10.78.0.1 %s n1 n2\n' "$name" >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
ip link add here type veth peer name there
ip addr add 10.78.0.1/24 dev here
for interface in lo here there; do ip link set "$interface" up; done

mkdir -p "$folder"/{munge,state,n1,n2}
chmod 700 "$folder/munge"
head -c 128 /dev/urandom >"$folder/munge/key"
chmod 600 "$folder/munge/key"
cat >"$folder/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$name
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1
SlurmdParameters=config_overrides
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/%n/slurmd.pid
SlurmdSpoolDir=$folder/%n
StateSaveLocation=$folder/state
NodeName=n1 NodeHostname=$name NodeAddr=10.78.0.1 Port=7001 CPUs=1
NodeName=n2 NodeHostname=$name NodeAddr=10.78.0.1 Port=7002 CPUs=1
PartitionName=all Nodes=n1,n2 Default=YES State=UP
END
export SLURM_CONF=$folder/slurm.conf
munged --foreground --force --socket="$folder/munge/socket" --key-file="$folder/munge/key" \
    --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" \
    --seed-file="$folder/munge/seed" &>"$folder/munged.log" &
slurmctld -D &>"$folder/slurmctld.log" &
for node in n1 n2; do slurmd -D -N "$node" &>"$folder/$node.log" & done
wait
