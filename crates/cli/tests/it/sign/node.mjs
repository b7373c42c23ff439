// What people do with the AWS SDK for JavaScript, unmodified but for the agent that every Node program needs for a proxy.
import { createHash, randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import {
  S3Client, PutObjectCommand, GetObjectCommand,
  CreateMultipartUploadCommand, UploadPartCommand, CompleteMultipartUploadCommand,
} from "@aws-sdk/client-s3";

const s3 = new S3Client({ region: "eu-west-1", maxAttempts: 1 });
const Bucket = "bucket";
const body = randomBytes(300000);

await s3.send(new PutObjectCommand({ Bucket, Key: "node/a b+ü~!*.bin", Body: body }));
console.log("put ok");
const stream = Readable.from([body.subarray(0, 100000), body.subarray(100000)]);
await s3.send(new PutObjectCommand({ Bucket, Key: "node/stream", Body: stream, ContentLength: body.length }));
console.log("stream ok");
for (const Key of ["node/a b+ü~!*.bin", "node/stream"]) {
  const got = await (await s3.send(new GetObjectCommand({ Bucket, Key }))).Body.transformToByteArray();
  if (createHash("sha256").update(got).digest("hex") !== createHash("sha256").update(body).digest("hex")) throw Key;
}
console.log("get", body.length, "ok");
const Key = "node/parts";
const { UploadId } = await s3.send(new CreateMultipartUploadCommand({ Bucket, Key }));
const { ETag } = await s3.send(new UploadPartCommand({ Bucket, Key, UploadId, PartNumber: 1, Body: body }));
const MultipartUpload = { Parts: [{ ETag, PartNumber: 1 }] };
await s3.send(new CompleteMultipartUploadCommand({ Bucket, Key, UploadId, MultipartUpload }));
console.log("multipart ok");
