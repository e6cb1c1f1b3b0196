"""User and host names that are words: alone they tell nothing, and to hide them would eat text."""

from __future__ import annotations

# What a replacement itself is made of must stay as it is, too.
_WORDS = """
user users host hostname token tokens email serial mac uuid credentials credential secret key ip
root admin administrator ubuntu debian fedora arch centos rocky alma suse nixos linux unix mint
test tester testing guest nobody default local localhost home work worker workers main master
head node nodes server servers client service services system daemon docker podman container
kubernetes jenkins runner build builder builds dev devel developer develop prod stage staging
data model models weights cache disk disks box boxes rig rigs desktop laptop workstation tower
towers machine cluster compute lab research science student teacher office studio games gaming
gpu gpus cpu cpus cuda nvidia amd intel ryzen threadripper epyc xeon memory board mother
motherboard bare metal bandwidth power bus link links slot card cards driver kernel version
vllm ray torch pytorch python pip llm llms ai ml deep learning engine engines launch serve
serving inference train training chat image images video audio vision text file
files folder log logs report reports config info warn warning error errors debug state check
checks name names path paths port ports address network proxy gateway web http https api app
apps base basic big small fast slow new old first last next one two three four five six seven
eight nine ten zero alpha beta gamma delta omega red green blue black white orange silver gold
north south east west star sun moon earth mars venus saturn jupiter pluto apollo zeus thor odin
atlas titan orion phoenix dragon wolf bear fox cat dog lion tiger eagle hawk falcon raven
max min mark will grant bill frank rich art jack ray drew chase hunter mason cooper
free used size total active enabled disabled unknown none true false and for not the with from
into over under all any each per read write open close start stop run running done ready
"""
COMMON = frozenset(_WORDS.split())
SHORTEST = 4


def is_distinctive(name: str) -> bool:
    """A name that is looked for on its own; others only where a name is expected."""
    return len(name) >= SHORTEST and name.lower() not in COMMON and not name.isdigit()
