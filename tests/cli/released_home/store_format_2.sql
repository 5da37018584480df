BEGIN TRANSACTION;
CREATE TABLE facts(seq INTEGER PRIMARY KEY, t REAL NOT NULL, job INTEGER, line TEXT NOT NULL);
INSERT INTO "facts" VALUES(1,1.30209779159995377997e+03,NULL,'{"t":1302.0977915999538,"e":"controller","epoch":1,"state":"recovering","policy":"srtf:bypass=skip"}');
INSERT INTO "facts" VALUES(2,1.31314185600058408454e+03,NULL,'{"t":1313.141856000584,"e":"controller","epoch":1,"state":"ready"}');
INSERT INTO "facts" VALUES(3,1.83212090340020949952e+03,1,'{"t":1832.1209034002095,"e":"submitted","job":"1","submit_s":1829.3601156015939,"gpus":2,"user":"root","model":"bert-base","work_s":1200.0,"length_s":1200.0}');
INSERT INTO "facts" VALUES(4,1.83212090340020949952e+03,1,'{"t":1832.1209034002095,"e":"started","job":"1","how":"start","on":[[0,2]],"rate":1.0,"from":1832.1209034002095}');
INSERT INTO "facts" VALUES(5,1.83212090340020949952e+03,NULL,'{"t":1832.1209034002095,"e":"explained","reasons":[]}');
INSERT INTO "facts" VALUES(6,1.85413196279987460002e+03,1,'{"t":1854.1319627998746,"e":"measured","job":"1","done_s":0.0,"rate":1.0}');
INSERT INTO "facts" VALUES(7,2.03701253999970504087e+03,2,'{"t":2037.012539999705,"e":"submitted","job":"2","submit_s":2036.4996755997709,"gpus":1,"user":"root","work_s":300.0,"length_s":300.0}');
INSERT INTO "facts" VALUES(8,2.03701253999970504087e+03,3,'{"t":2037.012539999705,"e":"submitted","job":"3","submit_s":2036.4996755997709,"gpus":1,"user":"root","work_s":300.0,"length_s":300.0}');
INSERT INTO "facts" VALUES(9,2.03701253999970504087e+03,4,'{"t":2037.012539999705,"e":"submitted","job":"4","submit_s":2036.4996755997709,"gpus":1,"user":"root","work_s":300.0,"length_s":300.0}');
INSERT INTO "facts" VALUES(10,2.03701253999970504087e+03,2,'{"t":2037.012539999705,"e":"started","job":"2","how":"start","on":[[0,1]],"rate":1.0,"from":2037.012539999705}');
INSERT INTO "facts" VALUES(11,2.03701253999970504087e+03,3,'{"t":2037.012539999705,"e":"started","job":"3","how":"start","on":[[0,1]],"rate":1.0,"from":2037.012539999705}');
INSERT INTO "facts" VALUES(12,2.03701253999970504087e+03,4,'{"t":2037.012539999705,"e":"started","job":"4","how":"start","on":[[1,1]],"rate":1.0,"from":2037.012539999705}');
INSERT INTO "facts" VALUES(13,2.05302998940096586015e+03,2,'{"t":2053.029989400966,"e":"measured","job":"2","done_s":0.0,"rate":1.0}');
INSERT INTO "facts" VALUES(14,2.05302998940096586015e+03,3,'{"t":2053.029989400966,"e":"measured","job":"3","done_s":0.0,"rate":1.0}');
INSERT INTO "facts" VALUES(15,2.06016652499965857714e+03,4,'{"t":2060.1665249996586,"e":"measured","job":"4","done_s":0.0,"rate":1.0}');
INSERT INTO "facts" VALUES(16,2.35868895540115772755e+03,2,'{"t":2358.6889554011577,"e":"measured","job":"2","done_s":300.0,"rate":1.0}');
INSERT INTO "facts" VALUES(17,2.35868895540115772755e+03,2,'{"t":2358.6889554011577,"e":"ended","job":"2","how":"completed"}');
INSERT INTO "facts" VALUES(18,2.35868895540115772755e+03,3,'{"t":2358.6889554011577,"e":"measured","job":"3","done_s":300.0,"rate":1.0}');
INSERT INTO "facts" VALUES(19,2.35868895540115772755e+03,3,'{"t":2358.6889554011577,"e":"ended","job":"3","how":"completed"}');
INSERT INTO "facts" VALUES(20,2.35868895540115772755e+03,4,'{"t":2358.6889554011577,"e":"measured","job":"4","done_s":300.0,"rate":1.0}');
INSERT INTO "facts" VALUES(21,2.35868895540115772755e+03,4,'{"t":2358.6889554011577,"e":"ended","job":"4","how":"completed"}');
INSERT INTO "facts" VALUES(22,3.04935981480011832891e+03,1,'{"t":3049.3598148001183,"e":"measured","job":"1","done_s":1200.0,"rate":1.0}');
INSERT INTO "facts" VALUES(23,3.04935981480011832891e+03,1,'{"t":3049.3598148001183,"e":"ended","job":"1","how":"completed"}');
INSERT INTO "facts" VALUES(24,1.88889215309995051935e+04,5,'{"t":18888.921530999505,"e":"submitted","job":"5","submit_s":18887.56438259952,"gpus":1,"min_gpus":1,"max_gpus":4,"user":"root","elastic":true,"work_s":36000.0,"length_s":36000.0}');
INSERT INTO "facts" VALUES(25,1.88889215309995051935e+04,5,'{"t":18888.921530999505,"e":"started","job":"5","how":"start","on":[[0,1]],"rate":1.0,"from":18888.921530999505}');
INSERT INTO "facts" VALUES(26,1.88975380488009250257e+04,5,'{"t":18897.538048800925,"e":"measured","job":"5","done_s":0.0,"rate":1.0}');
INSERT INTO "facts" VALUES(27,1.95656979029998183252e+04,8,'{"t":19565.69790299982,"e":"submitted","job":"8","submit_s":19557.694057199842,"gpus":2,"user":"root","model":"bert-base","priority":1.0,"work_s":144000.0,"length_s":144000.0}');
INSERT INTO "facts" VALUES(28,1.95656979029998183252e+04,8,'{"t":19565.69790299982,"e":"started","job":"8","how":"start","on":[[0,2]],"rate":1.0,"from":19565.69790299982}');
INSERT INTO "facts" VALUES(29,1.95688482468009169673e+04,8,'{"t":19568.848246800917,"e":"measured","job":"8","done_s":0.0,"rate":1.0}');
INSERT INTO "facts" VALUES(30,1.95694681776003562845e+04,8,'{"t":19569.468177600356,"e":"measured","job":"8","done_s":0.0,"rate":1.0}');
INSERT INTO "facts" VALUES(31,1.97723610186003497801e+04,9,'{"t":19772.36101860035,"e":"submitted","job":"9","submit_s":19769.975947799685,"gpus":2,"user":"root","model":"bert-base","priority":2.0,"work_s":144000.0,"length_s":144000.0}');
INSERT INTO "facts" VALUES(32,1.97723610186003497801e+04,9,'{"t":19772.36101860035,"e":"started","job":"9","how":"start","on":[[1,2]],"rate":1.0,"from":19772.36101860035}');
INSERT INTO "facts" VALUES(33,1.97770214190015394713e+04,9,'{"t":19777.02141900154,"e":"measured","job":"9","done_s":0.0,"rate":1.0}');
INSERT INTO "facts" VALUES(34,1.97778015762014547362e+04,9,'{"t":19777.801576201455,"e":"measured","job":"9","done_s":0.0,"rate":1.0}');
INSERT INTO "facts" VALUES(35,2.00193023154002730729e+04,10,'{"t":20019.302315400273,"e":"submitted","job":"10","submit_s":20013.562665599602,"gpus":2,"user":"root","model":"bert-base","priority":3.0,"work_s":144000.0,"length_s":144000.0}');
INSERT INTO "facts" VALUES(36,2.00193023154002730729e+04,10,'{"t":20019.302315400273,"e":"started","job":"10","how":"start","on":[[1,2]],"rate":1.0,"from":20019.302315400273}');
INSERT INTO "facts" VALUES(37,2.00244997116002195988e+04,10,'{"t":20024.49971160022,"e":"measured","job":"10","done_s":0.0,"rate":1.0}');
INSERT INTO "facts" VALUES(38,2.02289052054009516729e+04,11,'{"t":20228.90520540095,"e":"submitted","job":"11","submit_s":20228.338080600224,"gpus":2,"user":"root","model":"bert-base","work_s":144000.0,"length_s":144000.0}');
INSERT INTO "facts" VALUES(39,2.02289052054009516729e+04,NULL,'{"t":20228.90520540095,"e":"explained","reasons":[{"code":"Resources"}]}');
INSERT INTO "facts" VALUES(40,2.0403403190399694723e+04,8,'{"t":20403.403190399695,"e":"ended","job":"8","how":"cancelled"}');
INSERT INTO "facts" VALUES(41,2.0403403190399694723e+04,11,'{"t":20403.403190399695,"e":"started","job":"11","how":"start","on":[[0,2]],"rate":1.0,"from":20403.403190399695}');
INSERT INTO "facts" VALUES(42,2.0403403190399694723e+04,NULL,'{"t":20403.403190399695,"e":"explained","reasons":[]}');
INSERT INTO "facts" VALUES(43,2.04159096102011972106e+04,11,'{"t":20415.909610201197,"e":"measured","job":"11","done_s":0.0,"rate":1.0}');
CREATE TABLE job_counts(
    user TEXT, state TEXT, jobs INTEGER NOT NULL, PRIMARY KEY (user, state)
) WITHOUT ROWID;
INSERT INTO "job_counts" VALUES('root','CANCELLED',1);
INSERT INTO "job_counts" VALUES('root','COMPLETED',4);
INSERT INTO "job_counts" VALUES('root','COMPLETING',0);
INSERT INTO "job_counts" VALUES('root','CONFIGURING',0);
INSERT INTO "job_counts" VALUES('root','PENDING',2);
INSERT INTO "job_counts" VALUES('root','RUNNING',4);
CREATE TABLE jobs(
    number INTEGER PRIMARY KEY,
    spec TEXT NOT NULL,
    script TEXT,
    record TEXT NOT NULL,
    state TEXT NOT NULL,
    arrived INTEGER NOT NULL DEFAULT 0,
    submit_s REAL NOT NULL,
    end_s REAL,
    name TEXT NOT NULL,
    user TEXT NOT NULL,
    queue TEXT NOT NULL,
    array_of INTEGER,
    array_index INTEGER
);
INSERT INTO "jobs" VALUES(1,'{"name":"train-bert","command":[],"workdir":"/data/jobs","gpus":2,"min_gpus":2,"max_gpus":2,"user":"root","model":"bert-base","duration_s":1200.0,"environment":[["SEED","1"]],"paced":true,"ntasks":0}',NULL,'{"job":1,"state":"COMPLETED","submit_s":1829.3601156015939,"generation":1,"next_worker":2,"done_s":1200.0,"attained_gpu_s":2434.4778227998177,"since_s":3049.3598148001183,"first_start_s":1832.1209034002095,"ran_s":1195.2278520002437,"end_s":3049.3598148001183,"ending":"COMPLETED","exit_code":0,"samples":1200000,"total_samples":1200000,"iteration_s":0.1}','COMPLETED',1,1.82936011560159386135e+03,3.04935981480011832891e+03,'train-bert','root','',NULL,NULL);
INSERT INTO "jobs" VALUES(2,'{"name":"sweep","command":[],"workdir":"/data/jobs","user":"root","duration_s":300.0,"environment":[["SLURM_ARRAY_TASK_COUNT","3"],["SLURM_ARRAY_TASK_MIN","0"],["SLURM_ARRAY_TASK_MAX","2"],["SLURM_ARRAY_TASK_STEP","1"]],"array":0,"array_of":2,"paced":true,"ntasks":0}',NULL,'{"job":2,"state":"COMPLETED","submit_s":2036.4996755997709,"generation":1,"next_worker":1,"done_s":300.0,"attained_gpu_s":321.6764154014527,"since_s":2358.6889554011577,"first_start_s":2037.012539999705,"ran_s":305.65896600019187,"end_s":2358.6889554011577,"ending":"COMPLETED","exit_code":0,"samples":300000,"total_samples":300000,"iteration_s":0.1}','COMPLETED',1,2.03649967559977085329e+03,2.35868895540115772755e+03,'sweep','root','',2,0);
INSERT INTO "jobs" VALUES(3,'{"name":"sweep","command":[],"workdir":"/data/jobs","user":"root","duration_s":300.0,"environment":[["SLURM_ARRAY_TASK_COUNT","3"],["SLURM_ARRAY_TASK_MIN","0"],["SLURM_ARRAY_TASK_MAX","2"],["SLURM_ARRAY_TASK_STEP","1"]],"array":1,"array_of":2,"paced":true,"ntasks":0}',NULL,'{"job":3,"state":"COMPLETED","submit_s":2036.4996755997709,"generation":1,"next_worker":1,"done_s":300.0,"attained_gpu_s":321.6764154014527,"since_s":2358.6889554011577,"first_start_s":2037.012539999705,"ran_s":305.65896600019187,"end_s":2358.6889554011577,"ending":"COMPLETED","exit_code":0,"samples":300000,"total_samples":300000,"iteration_s":0.1}','COMPLETED',1,2.03649967559977085329e+03,2.35868895540115772755e+03,'sweep','root','',2,1);
INSERT INTO "jobs" VALUES(4,'{"name":"sweep","command":[],"workdir":"/data/jobs","user":"root","duration_s":300.0,"environment":[["SLURM_ARRAY_TASK_COUNT","3"],["SLURM_ARRAY_TASK_MIN","0"],["SLURM_ARRAY_TASK_MAX","2"],["SLURM_ARRAY_TASK_STEP","1"]],"array":2,"array_of":2,"paced":true,"ntasks":0}',NULL,'{"job":4,"state":"COMPLETED","submit_s":2036.4996755997709,"generation":1,"next_worker":1,"done_s":300.0,"attained_gpu_s":321.6764154014527,"since_s":2358.6889554011577,"first_start_s":2037.012539999705,"ran_s":298.52243040149915,"end_s":2358.6889554011577,"ending":"COMPLETED","exit_code":0,"samples":300000,"total_samples":300000,"iteration_s":0.1}','COMPLETED',1,2.03649967559977085329e+03,2.35868895540115772755e+03,'sweep','root','',2,2);
INSERT INTO "jobs" VALUES(5,'{"name":"grow","command":[],"workdir":"/data/jobs","max_gpus":4,"user":"root","duration_s":36000.0,"paced":true,"ntasks":0}',NULL,'{"job":5,"state":"RUNNING","submit_s":18887.56438259952,"generation":1,"placement":{"spans":[[0,1]]},"members":[{"worker":0,"node":0,"gpu":0}],"group":[0],"next_worker":1,"done_s":3000.661912198848,"rate":1.0,"attained_gpu_s":3009.2784300002677,"since_s":21898.199960999773,"first_start_s":18888.921530999505,"ran_s":3000.661912198848,"samples":3000000,"total_samples":36000000,"iteration_s":0.1}','RUNNING',1,1.88875643825995211955e+04,NULL,'grow','root','',NULL,NULL);
INSERT INTO "jobs" VALUES(6,'{"name":"train-bert","command":[],"workdir":"/data/jobs","gpus":2,"min_gpus":2,"max_gpus":2,"user":"root","model":"bert-base","duration_s":1200.0,"environment":[["SEED","1"]],"hold":true,"paced":true,"ntasks":0}',NULL,'{"job":6,"submit_s":19110.669061199587,"since_s":19111.300888800906,"held":true,"reason":"JobHeldUser","detail":"its owner holds it"}','PENDING',1,1.91106690611995873041e+04,NULL,'train-bert','root','',NULL,NULL);
INSERT INTO "jobs" VALUES(7,'{"name":"sweep","command":[],"workdir":"/data/jobs","user":"root","duration_s":300.0,"after":[{"kind":"afterok","job":5}],"paced":true,"ntasks":0}',NULL,'{"job":7,"submit_s":19330.39184340014,"since_s":19335.330148199864,"reason":"Dependency","detail":"it waits for afterok:5"}','PENDING',1,1.93303918434001388961e+04,NULL,'sweep','root','',NULL,NULL);
INSERT INTO "jobs" VALUES(8,'{"name":"train-bert","command":[],"workdir":"/data/jobs","gpus":2,"min_gpus":2,"max_gpus":2,"user":"root","model":"bert-base","priority":1.0,"duration_s":144000.0,"environment":[["SEED","1"]],"paced":true,"ntasks":0}',NULL,'{"job":8,"state":"CANCELLED","submit_s":19557.694057199842,"generation":1,"next_worker":2,"done_s":833.9350127993384,"attained_gpu_s":1675.4105747997528,"since_s":20406.787375800923,"first_start_s":19565.69790299982,"ran_s":834.5549435987778,"end_s":20406.787375800923,"detail":"cancelled by its owner","ending":"CANCELLED","samples":600000,"total_samples":144000000,"iteration_s":0.1}','CANCELLED',1,1.9557694057199842063e+04,2.04067873758009227453e+04,'train-bert','root','',NULL,NULL);
INSERT INTO "jobs" VALUES(9,'{"name":"train-bert","command":[],"workdir":"/data/jobs","gpus":2,"min_gpus":2,"max_gpus":2,"user":"root","model":"bert-base","priority":2.0,"duration_s":144000.0,"environment":[["SEED","1"]],"paced":true,"ntasks":0}',NULL,'{"job":9,"state":"RUNNING","submit_s":19769.975947799685,"generation":1,"placement":{"spans":[[1,2]]},"members":[{"worker":0,"node":1,"gpu":0},{"worker":1,"node":1,"gpu":1}],"group":[0,1],"next_worker":2,"done_s":3003.329419198417,"rate":1.0,"attained_gpu_s":6017.539953599044,"since_s":22781.13099539987,"first_start_s":19772.36101860035,"ran_s":3004.109576398332,"samples":3000000,"total_samples":144000000,"iteration_s":0.1}','RUNNING',1,1.97699759477996849458e+04,NULL,'train-bert','root','',NULL,NULL);
INSERT INTO "jobs" VALUES(10,'{"name":"train-bert","command":[],"workdir":"/data/jobs","gpus":2,"min_gpus":2,"max_gpus":2,"user":"root","model":"bert-base","priority":3.0,"duration_s":144000.0,"environment":[["SEED","1"]],"paced":true,"ntasks":0}',NULL,'{"job":10,"state":"RUNNING","submit_s":20013.562665599602,"generation":1,"placement":{"spans":[[1,2]]},"members":[{"worker":0,"node":1,"gpu":2},{"worker":1,"node":1,"gpu":3}],"group":[0,1],"next_worker":2,"rate":1.0,"attained_gpu_s":10.39479239989305,"since_s":20024.49971160022,"first_start_s":20019.302315400273,"total_samples":144000000,"iteration_s":0.1}','RUNNING',1,2.00135626655996020414e+04,NULL,'train-bert','root','',NULL,NULL);
INSERT INTO "jobs" VALUES(11,'{"name":"train-bert","command":[],"workdir":"/data/jobs","gpus":2,"min_gpus":2,"max_gpus":2,"user":"root","model":"bert-base","duration_s":144000.0,"environment":[["SEED","1"]],"paced":true,"ntasks":0}',NULL,'{"job":11,"state":"RUNNING","submit_s":20228.338080600224,"generation":1,"placement":{"spans":[[0,2]]},"members":[{"worker":0,"node":0,"gpu":3},{"worker":1,"node":0,"gpu":1}],"group":[0,1],"next_worker":2,"rate":1.0,"attained_gpu_s":25.012839603004977,"since_s":20415.909610201197,"first_start_s":20403.403190399695,"total_samples":144000000,"iteration_s":0.1}','RUNNING',1,2.02283380806002242033e+04,NULL,'train-bert','root','',NULL,NULL);
CREATE TABLE keys(
    key TEXT PRIMARY KEY, kind TEXT NOT NULL, digest TEXT NOT NULL, numbers TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('17f70e0b7d1d1ff216bb1f5fa4570e23','submit','13afaba00665eb993b61421c5b4ea97eecfe3426cf2acaef8e9e187acc196cec','[6]');
INSERT INTO "keys" VALUES('1979a8c56cf7e593371c93d79bd8f0ad','submit','51783fafe22b41627649b702afee528efeedf71bcee6196a1d18b799860f72bf','[9]');
INSERT INTO "keys" VALUES('40c7dd6d2bbe1081751d20e93a7f89b8','submit','a46c1e10cf8c7a2464ad4724b350be5f07a66ab242e3b930afd3289531274d33','[2]');
INSERT INTO "keys" VALUES('75839d969a93399ee3d9068ccccd112c','submit','53a91beac5b7166004f83129d5f16e09302c0775df81c4315c89c92e7981035a','[5]');
INSERT INTO "keys" VALUES('7a057acac604986ce0d9600a7ed226ea','submit','b622c9f5e1693c9eb49af7f854896c2c2e13376bb6c3742bba0bbc01d50af56e','[8]');
INSERT INTO "keys" VALUES('7b3267b79b4926a272af037a09616313','submit','b80cc153863d5dfeeb2f9a3d566bc9a3326138efc5ae4502aeee349706ce80b0','[1]');
INSERT INTO "keys" VALUES('7e9d48ef78c19d2aa5b4f22884cf44f2','request','10c33adcaa42f5f396aee0e2cae2f7d802d6a89e31bd7acfffe20edb2eac484f','[2]');
INSERT INTO "keys" VALUES('92ac1fab368c3cc7080402805f8374cd','submit','8f21a6862ff3405c843d2b6e48cd4fbb7b201eba2dbd0548755da08e1eb10d98','[11]');
INSERT INTO "keys" VALUES('d16905ff08a6ccbd37555e4cbabca43e','submit','6d30e9e122be92f5d2024c919e76c2f9f3aec7aa3939e4955e205f57b3952507','[7]');
INSERT INTO "keys" VALUES('db47f47246680098b009c47749082d5c','submit','866cfe16e915c4ea817d1c84e050366bd5f176a56a95c1b73798e1285e6437d6','[10]');
INSERT INTO "keys" VALUES('f9fb931bada48f96401cb2b7fba0c5de','request','91c2f6cb850d7f4a13f5ff94f2e2a2f0f192132166ec2c0b124e867d6a650cf0','[1]');
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('engine','emulated:2x4@600');
INSERT INTO "meta" VALUES('epoch','1');
INSERT INTO "meta" VALUES('epoch copy','1');
INSERT INTO "meta" VALUES('manifest','{"version":"0.1.0","live":true,"engine":"emulated:2x4@600","policy":"srtf:bypass=skip","name":"srtf","knows":["length"],"powers":["migrate","preempt"],"cluster":{"nodes":2,"gpus":8,"groups":[{"name":"group0","nodes":2,"gpus_per_node":4,"gpu_type":"","gpu_memory_bytes":17179869184.0,"cpus":0.0,"memory_bytes":0.0,"storage_bytes_per_s":0.0}],"links":[{"name":"node","bandwidth_bytes_per_s":12000000000.0,"latency_s":5e-06,"nodes":1},{"name":"fabric","bandwidth_bytes_per_s":1250000000.0,"latency_s":3e-05,"nodes":0}],"queues":[],"states":[]},"placement":"prefer,best-fit,keep","switching":{"start_s":0.0,"resume_s":5.0,"move_s":5.0,"resize_s":5.0,"adjust_s":0.0,"limit_s":3.6,"prepare_s":0.0,"cancels":true,"by_profile":0.0},"forecast":"declared","belief":"exact","adopt":{},"cancelled":"work","capacity_changes":0,"coalesce_s":0.0,"interference":"measured","cycle":"overlapped","physics":"placed","profiles":[],"without":[],"warm_up_s":0.0,"drain_s":0.0,"seed":0}');
INSERT INTO "meta" VALUES('measured','{"format":1,"rows":[["rate","bert-base@2",0,2,1000.0],["batch","bert-base@2",0,0,100]]}');
INSERT INTO "meta" VALUES('period','{"after": 0, "policies": ["srtf:bypass=skip"]}');
CREATE TABLE requests(
    seq INTEGER PRIMARY KEY,
    t REAL NOT NULL,
    verb TEXT NOT NULL,
    job INTEGER NOT NULL,
    node INTEGER NOT NULL,
    argument TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0
);
INSERT INTO "requests" VALUES(1,2.040093209639962879e+04,'cancel',8,-1,'',1);
INSERT INTO "requests" VALUES(2,2.29094068278005579485e+04,'down',-1,-1,'leave',1);
CREATE TABLE scripts(digest TEXT PRIMARY KEY, script TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX jobs_by_state ON jobs(state, number);
CREATE INDEX jobs_by_array ON jobs(array_of, array_index) WHERE array_of IS NOT NULL;
CREATE INDEX requests_open ON requests(seq) WHERE done = 0;
CREATE INDEX facts_by_job ON facts(job, seq) WHERE job IS NOT NULL;
CREATE INDEX jobs_live
    ON jobs(state, number, array_of, array_index, user, name) WHERE state IN ('PENDING','CONFIGURING','RUNNING','COMPLETING');
CREATE INDEX jobs_by_user_state ON jobs(user, state, number);
CREATE INDEX jobs_by_name_state ON jobs(name, state, number, user);
CREATE INDEX jobs_by_end ON jobs(end_s) WHERE end_s IS NOT NULL;
CREATE INDEX jobs_ended_by_state
    ON jobs(state, end_s, number, user, name) WHERE end_s IS NOT NULL;
CREATE INDEX jobs_ended_by_user
    ON jobs(user, state, end_s, number, name) WHERE end_s IS NOT NULL;
CREATE TRIGGER job_added AFTER INSERT ON jobs BEGIN
    INSERT INTO job_counts VALUES (new.user, new.state, 1)
        ON CONFLICT(user, state) DO UPDATE SET jobs = jobs + 1;
END;
CREATE TRIGGER job_removed AFTER DELETE ON jobs BEGIN
    UPDATE job_counts SET jobs = jobs - 1 WHERE user = old.user AND state = old.state;
END;
CREATE TRIGGER job_changed AFTER UPDATE OF state, user ON jobs
WHEN old.state <> new.state OR old.user <> new.user BEGIN
    UPDATE job_counts SET jobs = jobs - 1 WHERE user = old.user AND state = old.state;
    INSERT INTO job_counts VALUES (new.user, new.state, 1)
        ON CONFLICT(user, state) DO UPDATE SET jobs = jobs + 1;
END;
COMMIT;
PRAGMA application_id=1148155493;
PRAGMA user_version=2;
